// A setting is a field of a struct and its row: one line of a table, from which everything else
// that must know of it is made: the JSON's key, the command line's option with its help, which of
// the two wins, what ranks compare before they begin, what a resumed run must have in common with
// the run that it goes on with, and what the receipt shows.
//
// A struct's table stands right below it (options.h has the longest). A new setting is its field
// with its row there, and its use.
#pragma once
#include <array>
#include <concepts>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <type_traits>
#include <variant>

namespace sg::dist {

// ---- values that are words

// The names of an enum's values, in order; `title` begins the error of a word that is none of them.
struct Words {
  const char* title;
  std::span<const char* const> names;
};
size_t find_word(const Words& words, const std::string& text);  // usage error that lists the names

template <class Enum>
concept HasWords = std::is_enum_v<Enum> && requires(Enum value) {
  { words_of(value) } -> std::same_as<Words>;
};

template <HasWords Enum>
const char* name_of(Enum value) {
  return words_of(value).names[static_cast<size_t>(value)];
}

// How a type is written as a word. Of an enum with words_of it follows; for others specialise it.
template <class T>
struct Word;
template <HasWords Enum>
struct Word<Enum> {
  static const char* name(Enum value) { return name_of(value); }
  static Enum parse(const std::string& text) {
    return static_cast<Enum>(find_word(words_of(Enum{}), text));
  }
};

template <class T>
T parse_word(const std::string& text) {
  return Word<T>::parse(text);
}

// ---- where a value lies

// A value that is a word, its type forgotten.
struct WordField {
  void* at;
  std::string (*name)(const void* at);
  void (*parse)(void* at, const std::string& text);
  void (*assign)(void* at, const void* from);
};

using Field = std::variant<bool*, int*, int64_t*, uint64_t*, double*, std::string*, WordField>;

template <class T>
Field field_of(T& value) {
  if constexpr (std::is_constructible_v<Field, T*>) {
    return &value;
  } else {
    return WordField{
        &value,
        [](const void* at) -> std::string { return Word<T>::name(*static_cast<const T*>(at)); },
        [](void* at, const std::string& text) { *static_cast<T*>(at) = parse_word<T>(text); },
        [](void* at, const void* from) { *static_cast<T*>(at) = *static_cast<const T*>(from); }};
  }
}

// The field that a row names: At<&Options::clip>::of, or by two steps
// At<&Options::optimizer, &OptimizerOptions::eps>::of.
template <auto... path>
struct At {
  template <class Owner>
  static Field of(Owner& owner) {
    return field_of((owner.*....*path));
  }
};

// ---- rows

// bits: ranks compare it, the receipt shows it under `numerics`, and a resume refuses a change.
// calls: ranks compare it, as it decides which calls they make, or when. nothing: neither.
enum class Decides : uint8_t { bits, calls, nothing };

// Which commands ask for it.
enum class Topic : uint8_t {
  engine,
  layout,
  failures,
  optimizer,
  rates,
  batch,
  group,
  run,
  report
};

// How the command line writes it: `plain` as its type is written; a number of bytes ("25MiB"); a
// flag without a value.
enum class Form : uint8_t { plain, bytes, flag };

// From low to high; each of both may be out of it.
struct Range {
  double low = 0;
  double high = std::numeric_limits<double>::infinity();
  bool above_low = false;
  bool below_high = false;

  bool holds(double x) const;  // never for a NaN or an infinity
  // "a number of at least 0", "a whole number from 1 to 100"
  std::string text(bool whole) const;
};

// Engines by their bits (options.h: engines({…})).
using EngineSet = uint32_t;
inline constexpr EngineSet every_engine = ~EngineSet{0};

template <class Owner>
struct Setting {
  const char* name;  // for ranks that differ in it, and in the receipt
  Field (*field)(Owner&);

  // The JSON's keys that say it. Where there are several, or own_reader, config.cpp reads them
  // together with others; otherwise the one key is read by the field's type and range. implied_by:
  // sections that set it by their defaults wherever they stand.
  std::array<const char*, 2> keys = {};
  bool own_reader = false;
  std::array<const char*, 2> implied_by = {};

  const char* option = nullptr;  // null: the command line has no word for it
  const char* help = "";
  const char* shown_default = nullptr;  // in the help, instead of the value; "": none
  Range range = {};
  Form form = Form::plain;
  std::array<const char*, 2> switch_words = {"off", "on"};  // of a bool
  std::span<const char* const> one_of = {};                 // of a text: the texts that there are

  Topic topic = Topic::run;
  Decides decides = Decides::nothing;
  const char* shown_in = nullptr;    // the receipt's entry that tells of it; null: `name`
  EngineSet engines = every_engine;  // that use it
};

std::string text_of(const Field& field, const std::array<const char*, 2>& switch_words);
bool parse_switch(const std::array<const char*, 2>& switch_words, const std::string& text);
void assign(const Field& to, const Field& from);  // of one row

// What a row's field holds, as the receipt has it.
template <class Owner>
std::string text_of(const Setting<Owner>& row, const Owner& owner) {
  return text_of(row.field(const_cast<Owner&>(owner)), row.switch_words);  // only read
}

// Usage error "WHERE: NAME must be RANGE, not VALUE" for a number out of its range.
void check_range(const char* where, const char* name, const Field& field, const Range& range);

}  // namespace sg::dist

#include "dist/setting.h"

#include <fmt/format.h>

#include <cmath>

#include "core/error.h"

namespace sg::dist {
namespace {

template <class... Functions>
struct Cases : Functions... {
  using Functions::operator()...;
};
template <class... Functions>
Cases(Functions...) -> Cases<Functions...>;

}  // namespace

size_t find_word(const Words& words, const std::string& text) {
  std::string known;
  for (size_t i = 0; i < words.names.size(); ++i) {
    if (text == words.names[i])
      return i;
    known += (i ? ", " : "") + std::string(words.names[i]);
  }
  fail(ErrorKind::usage, "{}: \"{}\" is none of {}", words.title, text, known);
}

std::string text_of(const Field& field, const std::array<const char*, 2>& switch_words) {
  const Cases by_type{
      [&](const bool* value) { return std::string(switch_words[*value ? 1 : 0]); },
      [](const WordField& word) { return std::string(word.name(word.at)); },
      [](const auto* value) { return fmt::format("{}", *value); },
  };
  return std::visit(by_type, field);
}

bool parse_switch(const std::array<const char*, 2>& words, const std::string& text) {
  check(text == words[0] || text == words[1],
        "\"{}\" is neither {} nor {}",
        text,
        words[0],
        words[1]);
  return text == words[1];
}

void assign(const Field& to, const Field& from) {
  const Cases by_type{
      [&](const WordField& word) { word.assign(word.at, std::get<WordField>(from).at); },
      [&]<class Value>(Value* value) { *value = *std::get<Value*>(from); },
  };
  std::visit(by_type, to);
}

bool Range::holds(double x) const {
  const bool high_enough = above_low ? x > low : x >= low;
  const bool low_enough = below_high ? x < high : x <= high;
  return std::isfinite(x) && high_enough && low_enough;
}

std::string Range::text(bool whole) const {
  const std::string kind = whole ? "a whole number" : "a number";
  if (std::isfinite(high))
    return fmt::format("{} from {} to {}{}", kind, low, below_high ? "below " : "", high);
  return fmt::format("{} {} {}", kind, above_low ? "above" : "of at least", low);
}

void check_range(const char* where, const char* name, const Field& field, const Range& range) {
  const auto check_number = [&](auto value, bool whole) {
    check(range.holds(static_cast<double>(value)),
          "{}: {} must be {}, not {}",
          where,
          name,
          range.text(whole),
          value);
  };
  if (const auto* number = std::get_if<double*>(&field))
    check_number(**number, false);
  if (const auto* number = std::get_if<int64_t*>(&field))
    check_number(**number, true);
  if (const auto* number = std::get_if<int*>(&field))
    check_number(**number, true);
}

}  // namespace sg::dist

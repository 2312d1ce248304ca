#include "models/run/command_line.h"

#include <cmath>

#include "dist/options.h"
#include "models/run/values.h"

namespace sg::models {
namespace {

using dist::Form;
using dist::Range;

// What the parser does with every option of a number.
struct NumberOption {
  CLI::App& app;
  const OptionRow& row;

  // Shows the range where it ends.
  template <class Whole>
  CLI::Option* add_whole(Whole& value) const {
    const bool shown = row.range.high < dist::largest_option;
    const CLI::Range range(static_cast<int64_t>(row.range.low),
                           static_cast<int64_t>(std::min(row.range.high, dist::largest_option)));
    CLI::Option* option = app.add_option(row.name, value, row.help);
    CLI::Validator within = range;
    if (!shown)
      within.description("");
    if (std::is_same_v<Whole, int64_t> || std::is_same_v<Whole, int>)  // a seed is any number
      option->check(within);
    return row.shown_default ? option : option->capture_default_str();
  }

  CLI::Option* add_real(double& value) const {
    return add_number(app, row.name, value, row.help, row.range);
  }

  template <class Number>
  CLI::Option* add_bytes(Number& value) const {
    const std::string name = row.name;
    const auto parse = [name](const std::string& text) {
      return static_cast<Number>(parse_bytes(name, text));
    };
    return add_parsed(app, name, value, parse, row.help, row.shown_default);
  }
};

CLI::Option* add_bool(CLI::App& app, const OptionRow& row, bool& value) {
  if (row.form == Form::flag)
    return app.add_flag(row.name, value, row.help);
  const auto words = row.switch_words;
  const auto parse = [words, name = std::string(row.name)](const std::string& text) {
    try {
      return dist::parse_switch(words, text);
    } catch (const Error& e) {
      fail(ErrorKind::usage, "{}: {}", name, e.what());
    }
  };
  CLI::Option* option = add_parsed(app, row.name, value, parse, row.help, words[value ? 1 : 0]);
  return words[1] == std::string("on") ? option->type_name("on|off") : option;
}

CLI::Option* add_text(CLI::App& app, const OptionRow& row, std::string& value) {
  CLI::Option* option = app.add_option(row.name, value, row.help);
  if (!value.empty())
    option->capture_default_str();
  if (row.one_of.empty())
    return option;
  const std::vector<std::string> words(row.one_of.begin(), row.one_of.end());
  return option->check(CLI::IsMember(words));
}

CLI::Option* add_word(CLI::App& app, const OptionRow& row, const dist::WordField& word) {
  const auto take = [word, name = std::string(row.name)](const std::string& text) {
    try {
      word.parse(word.at, text);
    } catch (const Error& e) {  // "precision: …" of --precision
      const std::string message = e.what();
      fail(e.kind(),
           "{}{}",
           name.find(message.substr(0, message.find(':'))) == 2 ? "--" : "",
           message);
    }
  };
  return app.add_option_function<std::string>(row.name, take, row.help)
      ->default_str(word.name(word.at))
      ->type_name("TEXT");
}

}  // namespace

CLI::Option* add_option(CLI::App& app, const OptionRow& row, const dist::Field& field) {
  const NumberOption number{app, row};
  const auto add = [&]<class Value>(const Value& value) {
    if constexpr (std::is_same_v<Value, dist::WordField>)
      return add_word(app, row, value);
    else if constexpr (std::is_same_v<Value, bool*>)
      return add_bool(app, row, *value);
    else if constexpr (std::is_same_v<Value, std::string*>)
      return add_text(app, row, *value);
    else if (row.form == Form::bytes)
      return number.add_bytes(*value);
    else if constexpr (std::is_same_v<Value, double*>)
      return number.add_real(*value);
    else
      return number.add_whole(*value);
  };
  return std::visit(add, field);
}

CLI::Option* add_count(
    CLI::App& app, const std::string& name, int64_t& value, const std::string& help, int64_t low) {
  const CLI::Range range(low, static_cast<int64_t>(dist::largest_option));
  return app.add_option(name, value, help)
      ->capture_default_str()
      ->check(CLI::Range(range).description(""));
}

CLI::Option* add_switch(CLI::App& app,
                        const std::string& name,
                        bool& value,
                        const std::string& help) {
  return add_bool(app, {.name = name.c_str(), .help = help.c_str()}, value);
}

CLI::Option* add_number(CLI::App& app,
                        const std::string& name,
                        double& value,
                        const std::string& help,
                        const Range& range) {
  const auto complaint = [range](const std::string& text) {
    double x = NAN;
    CLI::detail::lexical_cast(text, x);
    return range.holds(x) ? std::string() : fmt::format("{} isn't {}", text, range.text(false));
  };
  return app.add_option(name, value, help)->capture_default_str()->check(complaint);
}

}  // namespace sg::models

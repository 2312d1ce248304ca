// Options of the command line, made from the rows of settings (dist/setting.h).
#pragma once
#include <CLI/CLI.hpp>
#include <algorithm>
#include <initializer_list>
#include <string>

#include "core/error.h"
#include "dist/setting.h"

namespace sg::models {

// What a row says to the command line.
struct OptionRow {
  const char* name;
  const char* help;
  const char* shown_default = nullptr;  // null: the value
  dist::Range range = {};
  dist::Form form = dist::Form::plain;
  std::array<const char*, 2> switch_words = {"off", "on"};
  std::span<const char* const> one_of = {};
};

// Adds it; a value out of the row's range, or a word that is none, is a usage error that names the
// option. `field` must outlive the parsing.
CLI::Option* add_option(CLI::App& app, const OptionRow& row, const dist::Field& field);

template <class Owner>
CLI::Option* add_setting(CLI::App& app, const dist::Setting<Owner>& row, Owner& owner) {
  const OptionRow words{
      row.option, row.help, row.shown_default, row.range, row.form, row.switch_words, row.one_of};
  return add_option(app, words, row.field(owner));
}

// Those of the table that belong to one of the topics.
template <class Rows, class Owner>
void add_settings(CLI::App& app,
                  const Rows& rows,
                  Owner& owner,
                  std::initializer_list<dist::Topic> topics) {
  for (const auto& row : rows) {
    const bool asked = std::find(topics.begin(), topics.end(), row.topic) != topics.end();
    if (asked && row.option)
      add_setting(app, row, owner);
  }
}

// The one with that option.
template <class Rows, class Owner>
CLI::Option* add_setting(CLI::App& app, const Rows& rows, Owner& owner, const std::string& option) {
  for (const auto& row : rows) {
    if (row.option == option)
      return add_setting(app, row, owner);
  }
  throw Bug("command line: no row has " + option);
}

// ---- options that are no settings

CLI::Option* add_count(CLI::App& app,
                       const std::string& name,
                       int64_t& value,
                       const std::string& help,
                       int64_t low = 1);
CLI::Option* add_number(CLI::App& app,
                        const std::string& name,
                        double& value,
                        const std::string& help,
                        const dist::Range& range = {});

// on or off
CLI::Option* add_switch(CLI::App& app,
                        const std::string& name,
                        bool& value,
                        const std::string& help);

// Text that `parse` turns into a value; its error is the option's.
template <class Value, class Parse>
CLI::Option* add_parsed(CLI::App& app,
                        const std::string& name,
                        Value& value,
                        Parse parse,
                        const std::string& help,
                        const std::string& shown_default) {
  const auto take = [&value, parse](const std::string& text) { value = parse(text); };
  return app.add_option_function<std::string>(name, take, help)
      ->default_str(shown_default)
      ->type_name("TEXT");
}

}  // namespace sg::models

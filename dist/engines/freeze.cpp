#include "dist/engines/freeze.h"

#include <fnmatch.h>

#include <sstream>

#include "core/error.h"

namespace sg::dist {
namespace {

std::string examples(const std::vector<Unit>& units) {
  std::string text;
  for (const Unit& unit : units)
    if (!unit.parameters.empty())
      text += (text.empty() ? "" : ", ") + unit.parameters[0].name();
  return text;
}

// The parameters that one pattern names; a tied one as often as units have it.
std::vector<Variable> named_by(const std::string& pattern, const std::vector<Unit>& units) {
  std::vector<Variable> named;
  for (const Unit& unit : units)
    for (const Variable& p : unit.parameters)
      if (::fnmatch(pattern.c_str(), p.name().c_str(), 0) == 0)
        named.push_back(p);
  return named;
}

std::vector<std::string> words_of(const std::string& patterns) {
  std::vector<std::string> words;
  std::istringstream text(patterns);
  for (std::string word; std::getline(text, word, ',');)
    words.push_back(word);
  return words;
}

}  // namespace

void check_patterns(const std::vector<Unit>& units, const std::string& patterns) {
  for (const std::string& pattern : words_of(patterns))
    check(!named_by(pattern, units).empty(),
          "freeze: \"{}\" names no parameter of this model; there are such as {}",
          pattern,
          examples(units));
}

void freeze(const std::vector<Unit>& units, const std::string& patterns) {
  for (const std::string& pattern : words_of(patterns))
    for (Variable& p : named_by(pattern, units))
      if (p.requires_grad())
        p.set_requires_grad(false);
}

}  // namespace sg::dist

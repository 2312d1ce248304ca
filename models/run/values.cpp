#include "models/run/values.h"

#include <algorithm>
#include <map>
#include <sstream>

#include "core/error.h"

namespace sg::models {

uint64_t parse_bytes(const std::string& option, const std::string& text) {
  double number = 0;
  size_t used = 0;
  try {
    number = std::stod(text, &used);
  } catch (const std::exception&) {
    used = 0;
  }
  static const std::map<std::string, double> units = {{"", 1},
                                                      {"B", 1},
                                                      {"KiB", 0x1p10},
                                                      {"MiB", 0x1p20},
                                                      {"GiB", 0x1p30},
                                                      {"TiB", 0x1p40},
                                                      {"kB", 1e3},
                                                      {"MB", 1e6},
                                                      {"GB", 1e9},
                                                      {"TB", 1e12}};
  const auto unit = units.find(text.substr(used));
  const double bytes = unit == units.end() ? -1 : number * unit->second;
  check(used > 0 && bytes >= 1 && bytes < 0x1p62,
        "{}: \"{}\" isn't a size such as 512MiB, 2GB or 1048576",
        option,
        text);
  return static_cast<uint64_t>(bytes);
}

double parse_count(const std::string& text) {
  size_t used = 0;
  double number = 0;
  try {
    number = std::stod(text, &used);
  } catch (const std::exception&) {
    used = 0;
  }
  const std::string unit = text.substr(used);
  const double scale = unit.empty()  ? 1
                       : unit == "m" ? 1e6
                       : unit == "b" ? 1e9
                       : unit == "t" ? 1e12
                                     : -1;
  check(used > 0 && number * scale >= 1e5 && number * scale <= 1e14,
        "--params: \"{}\" isn't a count such as 7.5b or 350m",
        text);
  return number * scale;
}

std::vector<dist::EngineKind> parse_engines(const std::string& text) {
  std::vector<dist::EngineKind> engines;
  std::istringstream words(text == "all" ? "dp,ddp,zero1,zero2,zero3" : text);
  for (std::string word; std::getline(words, word, ',');) {
    const dist::EngineKind engine = dist::parse_word<dist::EngineKind>(word);
    check(engine != dist::EngineKind::automatic, "engines: auto is one of the others; name those");
    check(std::find(engines.begin(), engines.end(), engine) == engines.end(),
          "engines: {} is named twice",
          word);
    engines.push_back(engine);
  }
  return engines;
}

}  // namespace sg::models

// Strict reading of JSON that somebody else may have written. (Internal: users of the library
// needn't have nlohmann-json.)
#pragma once
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace sg {

struct JsonLimits {
  size_t depth = 64;         // of nested objects and arrays
  size_t values = 1u << 24;  // of all kinds together
  std::vector<std::string>* repeated =
      nullptr;  // takes the paths of keys that are there twice; null: they are an error
};

// Error bad_input, naming `source` and the key path, for anything but one JSON value in UTF-8: bad
// syntax, text behind it, a byte-order mark, a NUL byte, a key twice in an object, a number beyond
// f64 (1e400), too deep, too many values.
nlohmann::json parse_json(std::string_view text,
                          const std::string& source,
                          const JsonLimits& limits = {});

// What nlohmann-json complains of, without its number of the complaint.
std::string complaint_of(const nlohmann::json::exception& error);

// object[key] as a whole number from `low` to `high`; error bad_input, naming `source` and the key,
// for anything else.
int64_t whole_field(const nlohmann::json& object,
                    const char* key,
                    const std::string& source,
                    int64_t low = 0,
                    int64_t high = INT64_MAX);

}  // namespace sg

// The size of a model, as the command line and the receipt say it.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace sg::models {

// A family's size by name, each number settable.
struct SizeOptions {
  std::string size = "nano";
  std::optional<int64_t> layers, heads, width, context, vocab;
  float dropout = 0;
  bool tied = true;
};

}  // namespace sg::models

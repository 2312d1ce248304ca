// How a family's parameters lie in Hugging Face's files.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "core/shape.h"

namespace sg::models {

// A tensor of theirs, all of which goes into one parameter of ours.
struct WeightPart {
  std::string name;
  Shape shape;              // in their file
  bool transposed = false;  // they have (in, out) where we have (out, in)
};

struct WeightFormat {
  // What makes up a parameter of this name and shape: one tensor, or several that lie behind each
  // other along our first dimension. Usage error for a name that the family doesn't have.
  std::function<std::vector<WeightPart>(const std::string& name, const Shape& shape)> parts;
  // Tensors that their model has beside this parameter's where ours may have none: written as
  // zeros.
  std::function<std::vector<WeightPart>(const std::string& name, const Shape& shape)> zeros = {};
  // Files may have a tensor of this name that no parameter is read from: masks, the second name of
  // a tied one.
  std::function<bool(const std::string& name)> passes_over = {};
  // Which their names begin with, and which some files leave out: "transformer.".
  std::string prefix = {};
};

}  // namespace sg::models

// Memory for the parts that a rank owns of something.
#pragma once
#include <utility>

#include "core/ops.h"

namespace sg {

// One array for everything a rank owns of something; its parts lie one after the other, in the
// order in which they are asked for.
class ShardArray {
 public:
  ShardArray() = default;
  ShardArray(int64_t elements, DType dtype, Category category, Device device = current_device()) {
    CategoryScope scope(category);
    array_ = empty({elements}, dtype, device);
  }
  Tensor next(int64_t elements) {
    const int64_t begin = std::exchange(given_, given_ + elements);
    return array_.slice(0, begin, given_);
  }

 private:
  Tensor array_;
  int64_t given_ = 0;
};

}  // namespace sg

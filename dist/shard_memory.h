// The memory of engines that shard gradients.
#pragma once
#include <utility>
#include <vector>

#include "core/ops.h"
#include "dist/flat_space.h"

namespace sg::dist {

// One array for everything a rank owns of something; its parts lie one after the other, in the order in which they are
// asked for.
class ShardArray {
 public:
  ShardArray() = default;
  ShardArray(int64_t elements, DType dtype, Category category) {
    CategoryScope scope(category);
    array_ = empty({elements}, dtype);
  }
  Tensor next(int64_t elements) {
    const int64_t begin = std::exchange(given_, given_ + elements);
    return array_.slice(0, begin, given_);
  }

 private:
  Tensor array_;
  int64_t given_ = 0;
};

// Buckets that exist only from their first contribution until they have been reduced.
class TransientBuckets {
 public:
  explicit TransientBuckets(const FlatSpace& space) : space_(space), buffers_(space.buckets().size()) {}

  bool is_open(int bucket) const { return buffers_[static_cast<size_t>(bucket)].defined(); }
  Tensor open(int bucket) {
    Tensor& buffer = buffers_[static_cast<size_t>(bucket)];
    if (buffer.defined()) return buffer;
    CategoryScope scope(Category::buckets);
    return buffer = empty({space_.buckets()[static_cast<size_t>(bucket)].size()}, space_.dtype());
  }
  void close(int bucket) { buffers_[static_cast<size_t>(bucket)] = {}; }

 private:
  const FlatSpace& space_;
  std::vector<Tensor> buffers_;
};

}  // namespace sg::dist

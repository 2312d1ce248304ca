// Where gradients lie: whole, in one array of which buckets are views (dp, ddp, zero1), or in
// buckets that exist only while they fill and travel, beside the means of what this rank owns
// (zero2, zero3).
#pragma once
#include <vector>

#include "core/ops.h"
#include "core/shard_array.h"
#include "dist/engines/flat_engine.h"

namespace sg::dist {

class WholeGradients : public FlatEngine {
 protected:
  using FlatEngine::FlatEngine;

  void allocate(const std::vector<Owned>& parts) override {
    FlatEngine::allocate(parts);
    CategoryScope scope(Category::gradients);
    gradients_ = empty({space_.size()}, options_.precision);
    if (means_apart())
      means_ = ShardArray(owned_size(parts), crossing_dtype(), Category::gradients);
  }
  Tensor open(int bucket) final {
    const Bucket& b = space_.buckets()[static_cast<size_t>(bucket)];
    return gradients_.slice(0, b.begin, b.end);
  }
  // A part's mean lies where this rank's own contribution was, unless it arrives in another dtype.
  Tensor mean_of(const Owned& part) final {
    return means_apart() ? means_.next(part.end - part.begin)
                         : gradients_.slice(0, part.begin, part.end);
  }
  bool means_apart() const { return crossing_dtype() != options_.precision; }

  Tensor gradients_;  // (φ)

 private:
  ShardArray means_;  // (s)
};

// Parameters: the engine that has the parameters, FlatEngine or BucketEngine.
template <class Parameters>
class ShardedGradients : public Parameters {
 protected:
  using typename Parameters::Owned;

  ShardedGradients(std::vector<Unit> units, const Options& options, Comm& comm)
      : Parameters(std::move(units), options, comm), buckets_(this->space_.buckets().size()) {}

  void allocate_means(const std::vector<Owned>& parts) {
    if (this->options_.elastic_determinism)
      return;  // f32 sums arrive elsewhere
    means_ = ShardArray(this->owned_size(parts), this->crossing_dtype(), Category::gradients);
  }
  Tensor mean_of(const Owned& part) final { return means_.next(part.end - part.begin); }

  // One bucket may be in flight while the next one fills.
  Tensor open(int bucket) final {
    Tensor& buffer = buckets_[static_cast<size_t>(bucket)];
    if (buffer.defined())
      return buffer;
    this->limit_in_flight(1);
    CategoryScope scope(Category::buckets);
    return buffer = empty({this->space_.buckets()[static_cast<size_t>(bucket)].size()},
                          this->options_.precision);
  }
  void close(int bucket) final {
    this->drop_gradients(bucket);
    buckets_[static_cast<size_t>(bucket)] = {};
  }

 private:
  std::vector<Tensor> buckets_;  // undefined unless it fills or is in flight
  ShardArray means_;             // (s)
};

}  // namespace sg::dist

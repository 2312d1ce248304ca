// Where an engine's gradients lie: the other one of its two parts. Whole, in one flat array of
// which buckets are views (ddp, dp, zero1), or in buckets that exist only while they fill and
// travel, beside the means of what this rank updates (zero2, zero3).
#pragma once
#include <functional>
#include <vector>

#include "core/shard_array.h"
#include "dist/engines/flat_space.h"

namespace sg::dist {

class Gradients {
 public:
  virtual ~Gradients() = default;

  // A bucket's gradient of this micro-step, one-dimensional, in the parameters' dtype: asked for
  // when its first contribution arrives, and again until it is released. Undefined at first.
  virtual Tensor open(int bucket) = 0;
  // The bucket has been added up or has crossed: nobody reads it any more.
  virtual void release(int bucket) { (void)bucket; }
  // Where the mean of a shard's gradient stays until the update, one-dimensional, in the dtype of
  // communication, on EngineLayout::state_device; asked for once for each shard, in their order.
  // Not with elastic determinism, whose f32 sums have a place of their own.
  virtual Tensor mean_of(const Shard& shard) = 0;
};

class WholeGradients final : public Gradients {
 public:
  explicit WholeGradients(const EngineLayout& on);

  Tensor open(int bucket) override;
  // Where this rank's own contribution was, unless it arrives in another dtype.
  Tensor mean_of(const Shard& shard) override;

  bool means_apart() const { return means_apart_; }
  Tensor range(int64_t begin, int64_t end) const { return flat_.slice(0, begin, end); }

 private:
  const EngineLayout on_;
  const bool means_apart_;  // in another dtype, or on the host
  Tensor flat_;             // (φ)
  ShardArray means_;        // (s), where means lie apart
};

class OneBucketAtATime final : public Gradients {
 public:
  // make_room: called before a bucket is opened; waits until at most one other has still to cross.
  OneBucketAtATime(const EngineLayout& on, std::function<void()> make_room);

  Tensor open(int bucket) override;
  void release(int bucket) override;  // frees it
  Tensor mean_of(const Shard& shard) override { return means_.next(shard.size()); }

 private:
  const EngineLayout on_;
  const std::function<void()> make_room_;
  std::vector<Tensor> open_;  // by bucket; undefined unless it fills or is in flight
  ShardArray means_;          // (s)
};

// The bucket's parameters forget their gradients, views that would keep its memory.
void forget_gradients(const FlatSpace& space, int bucket);

}  // namespace sg::dist

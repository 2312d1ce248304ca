// ZeRO-2 (Rajbhandari et al., SC 2020, §5.2): whole parameters, sharded gradients and optimizer state. A full bucket is
// reduced to its owners at once and freed; nobody ever holds all gradients.
// Per rank: Pφ + (G + K)·s bytes, and while backward runs the bucket that fills and the one in flight. Per step: a
// reduce-scatter and an all-gather of parameters, 2fφ elements; ranks first, a reduce-scatter every micro-step, (k +
// 1)fφ.
#include "core/ops.h"
#include "dist/engines.h"
#include "dist/flat_engine.h"
#include "dist/shard_memory.h"

namespace sg::dist {
namespace {

class Zero2 final : public FlatEngine {
 public:
  Zero2(std::vector<Unit> units, const Options& options, Comm& comm)
      : FlatEngine(std::move(units), options, comm), buckets_(space_) {}

 private:
  void allocate(const std::vector<Owned>& parts) override {
    FlatEngine::allocate(parts);
    gradients_ = ShardArray(owned_size(parts), options_.precision, Category::gradients);
  }

  Tensor mean_of(const Owned& part) override { return gradients_.next(part.end - part.begin); }

  Tensor open(int bucket) override {
    if (!buckets_.is_open(bucket)) limit_in_flight(1);
    return buckets_.open(bucket);
  }
  void close(int bucket) override {
    drop_gradients(bucket);
    buckets_.close(bucket);
  }

  Work reduce(const Call& call, const Message& message, const Tensor& gradient, const Tensor& mean) override {
    return comm_.reduce_scatter(call, gradient, message.shards, mean,
                                {.scale = mean_scale(), .algorithm = options_.reduction});
  }

  void publish() override { gather_parameters(); }

  TransientBuckets buckets_;
  ShardArray gradients_;  // (s)
};

}  // namespace

std::unique_ptr<BucketEngine> make_zero2(std::vector<Unit> units, const Options& options, Comm& comm) {
  return std::make_unique<Zero2>(std::move(units), options, comm);
}

}  // namespace sg::dist

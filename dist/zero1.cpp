// ZeRO-1 (Rajbhandari et al., "ZeRO: memory optimizations toward training trillion parameter models", SC 2020, §5.1):
// whole parameters and gradients, sharded optimizer state. The owner of a shard gets its mean gradient, updates, and
// sends the result. Per rank: (P + G)φ + K·s bytes. Per step: a reduce-scatter and an all-gather of parameters, 2fφ
// elements; with an all-reduce in the reduce-scatter's place, for study, 3fφ.
#include "core/ops.h"
#include "dist/engines.h"
#include "dist/flat_engine.h"

namespace sg::dist {
namespace {

class Zero1 final : public FlatEngine {
 public:
  Zero1(std::vector<Unit> units, const Options& options, Comm& comm) : FlatEngine(std::move(units), options, comm) {}

 private:
  void allocate(const std::vector<Owned>& parts) override {
    FlatEngine::allocate(parts);
    CategoryScope scope(Category::gradients);
    gradients_ = empty({space_.size()}, options_.precision);
  }

  // A shard's mean lies where the rank's own contribution was.
  Tensor mean_of(const Owned& part) override { return gradients_.slice(0, part.begin, part.end); }

  Tensor open(int bucket) override {
    const Bucket& b = space_.buckets()[static_cast<size_t>(bucket)];
    return gradients_.slice(0, b.begin, b.end);
  }

  Work reduce(const Call& call, const Message& message, const Tensor& gradient, const Tensor& mean) override {
    const Reduction reduction{.scale = mean_scale(), .algorithm = options_.reduction};
    if (!options_.zero1_all_reduce) return comm_.reduce_scatter(call, gradient, message.shards, mean, reduction);
    return comm_.all_reduce(call, gradient, gradients_.slice(0, message.begin, message.end), reduction);
  }

  void publish() override { gather_parameters(); }

  Tensor gradients_;  // (φ)
};

}  // namespace

std::unique_ptr<BucketEngine> make_zero1(std::vector<Unit> units, const Options& options, Comm& comm) {
  return std::make_unique<Zero1>(std::move(units), options, comm);
}

}  // namespace sg::dist

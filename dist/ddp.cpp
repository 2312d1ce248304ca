// DDP (Li et al., "PyTorch Distributed: experiences on accelerating data parallel training", VLDB 2020): every rank has
// everything; buckets of gradients are averaged over the ranks while backward goes on; every rank makes the same
// update. Per rank: (P + G + K)φ bytes. Per step: an all-reduce, 2fφ elements sent and received, f = (N−1)/N.
#include "core/ops.h"
#include "dist/engines.h"
#include "dist/flat_engine.h"

namespace sg::dist {
namespace {

class Ddp final : public FlatEngine {
 public:
  Ddp(std::vector<Unit> units, const Options& options, Comm& comm) : FlatEngine(std::move(units), options, comm) {}

 private:
  void allocate(const std::vector<Owned>& parts) override {
    FlatEngine::allocate(parts);
    CategoryScope scope(Category::gradients);
    gradients_ = empty({space_.size()}, options_.precision);
  }

  Shards owners(const Message& message) const override { return Shards::whole(message.size(), 1, 0); }
  Tensor mean_of(const Owned& part) override { return gradients_.slice(0, part.begin, part.end); }

  // Gradients are views of buckets, buckets of one array.
  Tensor open(int bucket) override {
    const Bucket& b = space_.buckets()[static_cast<size_t>(bucket)];
    return gradients_.slice(0, b.begin, b.end);
  }

  Work reduce(const Call& call, const Message&, const Tensor& gradient, const Tensor& mean) override {
    return comm_.all_reduce(call, gradient, mean, {.scale = mean_scale(), .algorithm = options_.reduction});
  }

  Tensor gradients_;  // (φ)
};

}  // namespace

std::unique_ptr<BucketEngine> make_ddp(std::vector<Unit> units, const Options& options, Comm& comm) {
  return std::make_unique<Ddp>(std::move(units), options, comm);
}

}  // namespace sg::dist

// DDP (Li et al., "PyTorch Distributed: experiences on accelerating data parallel training", VLDB
// 2020): every rank has everything; buckets of gradients are averaged over the ranks while backward
// goes on; every rank makes the same update. Per rank: (P + G + K)φ bytes. Per step: an all-reduce,
// 2fφ elements sent and received, f = (N−1)/N.
#include "dist/engines/engines.h"
#include "dist/engines/gradient_memory.h"

namespace sg::dist {
namespace {

class Ddp final : public WholeGradients {
 public:
  Ddp(std::vector<Unit> units, const Options& options, Comm& comm)
      : WholeGradients(std::move(units), options, comm) {}
  ~Ddp() override { retire(); }

 private:
  Shards owners(const Message& message) const override {
    return Shards::whole(message.size(), 1, 0);
  }
  Work reduce(const Call& call,
              const Message&,
              const Tensor& gradient,
              const Tensor& mean) override {
    return comm_.all_reduce(call, gradient, mean, mean_reduction());
  }
};

}  // namespace

std::unique_ptr<BucketEngine> make_ddp(std::vector<Unit> units,
                                       const Options& options,
                                       Comm& comm) {
  return std::make_unique<Ddp>(std::move(units), options, comm);
}

}  // namespace sg::dist

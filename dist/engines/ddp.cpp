// DDP (Li et al., "PyTorch Distributed: experiences on accelerating data parallel training", VLDB
// 2020): every rank has everything; buckets of gradients are averaged over the ranks while backward
// goes on; every rank makes the same update, so nothing follows it. Per rank: (P + G + K)φ bytes.
// Per step: an all-reduce, 2fφ elements sent and received, f = (N−1)/N.
#include "dist/engines/engines.h"

namespace sg::dist {
namespace {

class Ddp final : public BucketEngine {
 public:
  Ddp(std::vector<Unit> units, const Options& options, Comm& comm)
      : BucketEngine(std::move(units), options, comm, Updater::every_rank) {
    hold<WholeParameters>();
    hold<WholeGradients>();
  }

 private:
  Work send(const GradientMessage& m) override {
    return comm_.all_reduce(m.call, m.gradient, m.mean, m.reduction);
  }
};

}  // namespace

std::unique_ptr<BucketEngine> make_ddp(std::vector<Unit> units,
                                       const Options& options,
                                       Comm& comm) {
  return std::make_unique<Ddp>(std::move(units), options, comm);
}

}  // namespace sg::dist

// DP, data parallelism with a master: every replica computes gradients of its part of the batch,
// replica 0 gathers and averages them, updates, and sends parameters back. Its link carries
// everybody's gradients, which is what DDP mends. Replica 0: (P + G + K)φ bytes, others (P + G)φ.
// Per step: replica 0 receives and sends (N − 1)φ elements, others φ and φ.
#include "dist/engines/engines.h"

namespace sg::dist {
namespace {

class Dp final : public BucketEngine {
 public:
  Dp(std::vector<Unit> units, const Options& options, Comm& comm)
      : BucketEngine(std::move(units), options, comm, Updater::rank_0),
        parameters_(hold<WholeParameters>()) {
    hold<WholeGradients>();
  }

 private:
  // A reduction to replica 0: all of m.shards is its own.
  Work send(const GradientMessage& m) override {
    return comm_.reduce_scatter(m.call, m.gradient, m.shards, m.mean, m.reduction);
  }
  void after_update() override { parameters_.broadcast(0); }

  WholeParameters& parameters_;
};

}  // namespace

std::unique_ptr<BucketEngine> make_dp(std::vector<Unit> units, const Options& options, Comm& comm) {
  return std::make_unique<Dp>(std::move(units), options, comm);
}

}  // namespace sg::dist

// ZeRO-3 (Rajbhandari et al., SC 2020, §5.3): parameters, gradients and optimizer state are all
// sharded. A unit's parameters are gathered before its forward, released after it, gathered again
// before its backward; its gradients are reduced to their owners like ZeRO-2's. Per rank: (P + G +
// K)·s bytes, and live: the unit that runs and those gathered ahead of it. Per step: two
// all-gathers and a reduce-scatter, 3fφ elements; with k micro-steps (2k + 1)fφ local first, 3kfφ
// ranks first; the unit whose forward came last is kept for its backward where the budget ahead
// allows it, which saves kfφ of it; so is a unit that backward recomputes. Persistent parameters
// stay whole: Pφ bytes of theirs in place of P·s, gathered once after an update.
#include "dist/engines/engines.h"
#include "dist/engines/gathered_by_unit.h"

namespace sg::dist {
namespace {

class Zero3 final : public BucketEngine {
 public:
  Zero3(std::vector<Unit> units, const Options& options, Comm& comm)
      : BucketEngine(std::move(units), options, comm, Updater::owners),
        parameters_(hold<GatheredByUnit>([this](int position) { count(position); })) {
    hold<OneBucketAtATime>([this] { synchronize_gradients(1); });
  }

 private:
  // Then the bucket is freed, as ZeRO-2's.
  Work send(const GradientMessage& m) override {
    return comm_.reduce_scatter(m.call, m.gradient, m.shards, m.mean, m.reduction);
  }
  // The others are gathered before they are used.
  void after_update() override { parameters_.all_gather_persistent(); }

  GatheredByUnit& parameters_;
};

}  // namespace

std::unique_ptr<BucketEngine> make_zero3(std::vector<Unit> units,
                                         const Options& options,
                                         Comm& comm) {
  return std::make_unique<Zero3>(std::move(units), options, comm);
}

}  // namespace sg::dist

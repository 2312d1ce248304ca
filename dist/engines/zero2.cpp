// ZeRO-2 (Rajbhandari et al., SC 2020, §5.2): whole parameters, sharded gradients and optimizer
// state. A full bucket is reduced to its owners at once and freed; nobody ever holds all gradients.
// Per rank: Pφ + (G + K)·s bytes, and while backward runs the bucket that fills and the one in
// flight. Per step: a reduce-scatter and an all-gather of parameters, 2fφ elements; ranks first, k
// reduce-scatters, (k + 1)fφ.
#include "dist/engines/engines.h"

namespace sg::dist {
namespace {

class Zero2 final : public BucketEngine {
 public:
  Zero2(std::vector<Unit> units, const Options& options, Comm& comm)
      : BucketEngine(std::move(units), options, comm, Updater::owners),
        parameters_(hold<WholeParameters>()) {
    // The next bucket begins to fill when at most one is in flight.
    hold<OneBucketAtATime>([this] { synchronize_gradients(1); });
  }

 private:
  // Then the bucket is freed (OneBucketAtATime::release): of it only the owners' means stay.
  Work send(const GradientMessage& m) override {
    return comm_.reduce_scatter(m.call, m.gradient, m.shards, m.mean, m.reduction);
  }
  void after_update() override { parameters_.all_gather(); }

  WholeParameters& parameters_;
};

}  // namespace

std::unique_ptr<BucketEngine> make_zero2(std::vector<Unit> units,
                                         const Options& options,
                                         Comm& comm) {
  return std::make_unique<Zero2>(std::move(units), options, comm);
}

}  // namespace sg::dist

// ZeRO-1 (Rajbhandari et al., "ZeRO: memory optimizations toward training trillion parameter
// models", SC 2020, §5.1): whole parameters and gradients, sharded optimizer state. The owner of a
// shard gets its mean gradient, updates, and sends the result. Per rank: (P + G)φ + K·s bytes. Per
// step: a reduce-scatter and an all-gather of parameters, 2fφ elements; with an all-reduce in the
// reduce-scatter's place, for study, 3fφ.
#include "core/ops.h"
#include "dist/engines/engines.h"

namespace sg::dist {
namespace {

class Zero1 final : public BucketEngine {
 public:
  Zero1(std::vector<Unit> units, const Options& options, Comm& comm)
      : BucketEngine(std::move(units), options, comm, Updater::owners),
        parameters_(hold<WholeParameters>()),
        gradients_(hold<WholeGradients>()) {}

 private:
  Work send(const GradientMessage& m) override {
    if (options_.zero1_all_reduce)
      return all_reduce(m);
    return comm_.reduce_scatter(m.call, m.gradient, m.shards, m.mean, m.reduction);
  }
  void after_update() override { parameters_.all_gather(); }

  // For study: everybody gets every mean, of which only this rank's shard is used.
  Work all_reduce(const GradientMessage& m) {
    if (!gradients_.means_apart())
      return comm_.all_reduce(m.call, m.gradient, gradients_.range(m.begin, m.end), m.reduction);
    Work work = comm_.all_reduce(m.call, m.gradient, m.reduction);
    const Tensor mine = m.shards.of(m.gradient, comm_.rank());
    work.then([mine, mean = m.mean] { copy_(mean, mine); });
    return work;
  }

  WholeParameters& parameters_;
  WholeGradients& gradients_;
};

}  // namespace

std::unique_ptr<BucketEngine> make_zero1(std::vector<Unit> units,
                                         const Options& options,
                                         Comm& comm) {
  return std::make_unique<Zero1>(std::move(units), options, comm);
}

}  // namespace sg::dist

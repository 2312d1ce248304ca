// ZeRO-1 (Rajbhandari et al., "ZeRO: memory optimizations toward training trillion parameter
// models", SC 2020, §5.1): whole parameters and gradients, sharded optimizer state. The owner of a
// shard gets its mean gradient, updates, and sends the result. Per rank: (P + G)φ + K·s bytes. Per
// step: a reduce-scatter and an all-gather of parameters, 2fφ elements; with an all-reduce in the
// reduce-scatter's place, for study, 3fφ.
#include "dist/engines/engines.h"
#include "dist/engines/gradient_memory.h"

namespace sg::dist {
namespace {

class Zero1 final : public WholeGradients {
 public:
  Zero1(std::vector<Unit> units, const Options& options, Comm& comm)
      : WholeGradients(std::move(units), options, comm) {}
  ~Zero1() override { retire(); }

 private:
  Work reduce(const Call& call,
              const Message& message,
              const Tensor& gradient,
              const Tensor& mean) override {
    if (!options_.zero1_all_reduce)
      return comm_.reduce_scatter(call, gradient, message.shards, mean, mean_reduction());
    if (!means_apart())
      return comm_.all_reduce(
          call, gradient, gradients_.slice(0, message.begin, message.end), mean_reduction());
    Work work = comm_.all_reduce(call, gradient, mean_reduction());
    work.then([=, mine = message.shards.of(gradient, comm_.rank())] { copy_(mean, mine); });
    return work;
  }

  void publish() override { gather_parameters(); }
};

}  // namespace

std::unique_ptr<BucketEngine> make_zero1(std::vector<Unit> units,
                                         const Options& options,
                                         Comm& comm) {
  return std::make_unique<Zero1>(std::move(units), options, comm);
}

}  // namespace sg::dist

// ZeRO-2 (Rajbhandari et al., SC 2020, §5.2): whole parameters, sharded gradients and optimizer
// state. A full bucket is reduced to its owners at once and freed; nobody ever holds all gradients.
// Per rank: Pφ + (G + K)·s bytes, and while backward runs the bucket that fills and the one in
// flight. Per step: a reduce-scatter and an all-gather of parameters, 2fφ elements; ranks first, k
// reduce-scatters, (k + 1)fφ.
#include "dist/engines/engines.h"
#include "dist/engines/gradient_memory.h"

namespace sg::dist {
namespace {

class Zero2 final : public ShardedGradients<FlatEngine> {
 public:
  Zero2(std::vector<Unit> units, const Options& options, Comm& comm)
      : ShardedGradients(std::move(units), options, comm) {}
  ~Zero2() override { retire(); }

 private:
  void allocate(const std::vector<Owned>& parts) override {
    FlatEngine::allocate(parts);
    allocate_means(parts);
  }

  Work reduce(const Call& call,
              const Message& message,
              const Tensor& gradient,
              const Tensor& mean) override {
    return comm_.reduce_scatter(call, gradient, message.shards, mean, mean_reduction());
  }

  void publish() override { gather_parameters(); }
};

}  // namespace

std::unique_ptr<BucketEngine> make_zero2(std::vector<Unit> units,
                                         const Options& options,
                                         Comm& comm) {
  return std::make_unique<Zero2>(std::move(units), options, comm);
}

}  // namespace sg::dist

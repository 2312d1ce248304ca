// DP, data parallelism with a master: every replica computes gradients of its part of the batch,
// replica 0 gathers and averages them, updates, and sends parameters back. Its link carries
// everybody's gradients, which is what DDP mends. Replica 0: (P + G + K)φ bytes, others (P + G)φ.
// Per step: replica 0 receives and sends (N − 1)φ elements, others φ and φ.
#include "dist/engines/engines.h"
#include "dist/engines/gradient_memory.h"

namespace sg::dist {
namespace {

class Dp final : public WholeGradients {
 public:
  Dp(std::vector<Unit> units, const Options& options, Comm& comm)
      : WholeGradients(std::move(units), options, comm) {}
  ~Dp() override { retire(); }

 private:
  Shards owners(const Message& message) const override {
    return Shards::whole(message.size(), comm_.size(), 0);
  }
  // A reduction whose only owner is replica 0.
  Work reduce(const Call& call,
              const Message& message,
              const Tensor& gradient,
              const Tensor& mean) override {
    return comm_.reduce_scatter(call, gradient, owners(message), mean, mean_reduction());
  }

  void publish() override {
    for (const Bucket& bucket : space_.buckets()) {
      comm_
          .broadcast({fmt::format("dp.parameters.{}", bucket.begin), Phase::step},
                     parameters_.slice(0, bucket.begin, bucket.end),
                     0)
          .wait();
    }
  }
};

}  // namespace

std::unique_ptr<BucketEngine> make_dp(std::vector<Unit> units, const Options& options, Comm& comm) {
  return std::make_unique<Dp>(std::move(units), options, comm);
}

}  // namespace sg::dist

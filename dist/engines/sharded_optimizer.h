// The optimizer over the shards that a rank updates. A pass gives the same bits for any split
// (kernels/update.h), so it doesn't matter which rank has which.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "dist/engine.h"
#include "dist/engines/flat_space.h"
#include "dist/engines/host_update.h"
#include "optim/optimizer.h"

namespace sg::dist {

class ShardedOptimizer {
 public:
  // parameters[i]: those of shard i, one-dimensional, in the space's dtype. State is booked as
  // `optimizer`: 8 bytes per element for Adam, 4 for momentum and Lion, 4 more for an f32 master
  // where the space's dtype is 16-bit; an f32 parameter is its own master. `space` outlives it.
  // `copies`: of the device whose host has the state and updates; there an f32 parameter has a
  // master of its own. Null: state lies with the parameters.
  ShardedOptimizer(const FlatSpace& space,
                   std::vector<Shard> shards,
                   std::vector<Tensor> parameters,
                   const optim::OptimizerOptions& options,
                   CopyStream* copies);

  // Calls with the masters of a parameter that are here, f32: elements [begin, end) of it. Whoever
  // writes them calls cast_masters.
  using VisitMaster = std::function<void(const Tensor& master, int64_t begin, int64_t end)>;
  void visit_masters(const Placed& parameter, const VisitMaster& visit) const;
  void cast_masters();  // 16-bit parameters become their masters, rounded to nearest even

  // One update: gradients[i] belongs to shard i and lies with its state; factor multiplies it first
  // (unscale and clip). `updated` is told of each bucket of which this rank updates a shard when
  // its parameters are on the device; buckets in the order in which forward needs them.
  using Updated = std::function<void(int bucket, const Event& there)>;
  void step(const std::vector<Tensor>& gradients,
            double lr,
            float factor,
            const Updated& updated = {});

  int64_t t() const { return optimizer_->t(); }
  void set_t(int64_t t) { optimizer_->set_t(t); }
  std::vector<StateEntry> state() const;  // in registration order

 private:
  struct Kind {
    std::string name;              // "moment1"
    std::vector<Tensor> by_shard;  // f32
  };
  struct Run {  // neighbours in the same parameter group
    size_t shard = 0;
    int64_t begin = 0, end = 0;  // in the shard
    size_t group = 0;
  };
  std::vector<Tensor> cut(const Tensor& flat) const;  // one for each shard
  bool has_masters() const { return is_16bit(space_.dtype()) || host_; }
  optim::Slice slice_of(const Run& run, const std::vector<Tensor>& gradients) const;
  void step_on_host(const std::vector<Tensor>& gradients, float factor, const Updated& updated);
  void find_runs();
  void add_state(const Kind& kind, std::vector<std::vector<StateEntry>>& by_registration) const;

  const FlatSpace& space_;
  const std::vector<Shard> shards_;
  const std::vector<Tensor> parameters_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  Kind masters_{"master", {}};
  std::vector<Kind> kinds_;
  std::vector<Run> runs_;
  std::unique_ptr<HostUpdate> host_;  // null: the device updates
};

}  // namespace sg::dist

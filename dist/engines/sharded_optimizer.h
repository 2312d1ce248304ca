// The optimizer over the part of the flat space that a rank owns. A pass gives the same bits for
// any split (kernels/update.h), so it doesn't matter which rank owns what.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "dist/engine.h"
#include "dist/engines/flat_space.h"
#include "optim/optimizer.h"

namespace sg::dist {

// A flat range and where its parameters lie: (end − begin), one-dimensional, in the space's dtype.
struct OwnedRange {
  int64_t begin = 0, end = 0;
  Tensor parameters;
};

class ShardedOptimizer {
 public:
  // State is booked as `optimizer`: 8 bytes per element for Adam, 4 for momentum and Lion, 4 more
  // for an f32 master where the space's dtype is 16-bit; an f32 parameter is its own master.
  ShardedOptimizer(const FlatSpace& space,
                   std::vector<OwnedRange> owned,
                   const optim::OptimizerOptions& options);

  // The masters of an owned range, (end − begin) f32. Whoever writes them calls publish_masters.
  const Tensor& master(size_t range) const { return masters_[range]; }
  void publish_masters();  // 16-bit parameters become their masters, rounded to nearest even

  // One update: gradients[i] belongs to range i; factor multiplies it first (unscale and clip).
  void step(const std::vector<Tensor>& gradients, double lr, float factor);

  int64_t t() const { return optimizer_->t(); }
  void set_t(int64_t t) { optimizer_->set_t(t); }
  std::vector<StateEntry> state() const;  // in registration order

 private:
  struct Kind {
    std::string name;              // "moment1"
    std::vector<Tensor> by_range;  // f32
  };
  struct Run {  // neighbours in the same parameter group
    size_t range = 0;
    int64_t begin = 0, end = 0;  // in the range
    size_t group = 0;
  };
  void find_runs();

  const FlatSpace& space_;
  std::vector<OwnedRange> owned_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::vector<Tensor> masters_;
  std::vector<Kind> kinds_;
  std::vector<Run> runs_;
};

}  // namespace sg::dist

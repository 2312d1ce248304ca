// The optimizer's state for the part of the flat space that a rank owns, and its pass over it. A pass gives the same
// bits for any split (kernels/update.h), so it doesn't matter which rank owns what.
#pragma once
#include <string>
#include <vector>

#include "dist/engine.h"
#include "dist/flat_space.h"

namespace sg::dist {

// A flat range and where its parameters lie: (end − begin), one-dimensional, in the space's dtype.
struct OwnedRange {
  int64_t begin = 0, end = 0;
  Tensor parameters;
};

class ShardedOptimizer {
 public:
  // State is booked as `optimizer`: 8 bytes per element for Adam, 4 for momentum and Lion, 4 more for an f32 master
  // where the space's dtype is 16-bit; of f32 parameters the parameter is its own master.
  ShardedOptimizer(const FlatSpace& space, std::vector<OwnedRange> owned, const OptimizerOptions& options);

  // The masters of an owned range, (end − begin) f32. Whoever writes them calls publish_masters.
  const Tensor& master(size_t range) const { return masters_[range]; }
  void publish_masters();  // 16-bit parameters become their masters, rounded to nearest even

  // One update: gradients[i] belongs to range i, factor multiplies it first (unscale and clip).
  void step(const std::vector<Tensor>& gradients, double lr, double factor);

  int64_t steps() const { return steps_; }
  void set_steps(int64_t steps) { steps_ = steps; }
  std::vector<StateEntry> state() const;  // in registration order

 private:
  struct Kind {
    std::string name;              // "moment1"
    std::vector<Tensor> by_range;  // f32
  };
  struct Run {  // neighbours with the same weight decay
    size_t range;
    int64_t begin, end;  // in the range
    bool decays;
  };
  void find_runs();
  void update(const Run& run, const Tensor& gradient, double lr, double factor);

  const FlatSpace& space_;
  std::vector<OwnedRange> owned_;
  OptimizerOptions options_;
  std::vector<Tensor> masters_;
  std::vector<Kind> kinds_;
  std::vector<Run> runs_;
  int64_t steps_ = 0;
};

}  // namespace sg::dist

// Rows with a target: the losses' mean is over these, and a step weighs its micro-batches by their
// number.
#pragma once
#include <cstdint>

#include "core/tensor.h"

namespace sg {

// How many targets (i32 or i64) aren't −1; a dry run has no values and takes them all.
int64_t count_targets(const Tensor& targets);

// What the losses computed on this thread, while the innermost scope lives, counted; those that
// backward computes again count once.
class TargetsMet {
 public:
  TargetsMet();
  ~TargetsMet();
  TargetsMet(const TargetsMet&) = delete;
  TargetsMet& operator=(const TargetsMet&) = delete;

  int64_t losses() const { return losses_; }        // calls of cross_entropy and classifier_loss
  int64_t targets() const { return targets_; }      // rows with a target, of all calls
  int64_t positions() const { return positions_; }  // rows
  static void report(int64_t targets, int64_t positions);

 private:
  TargetsMet* const outer_;
  int64_t losses_ = 0, targets_ = 0, positions_ = 0;
};

}  // namespace sg

// How the micro-steps of a step add up at whoever updates a shard.
//
// Left to right (numerics, rule 4): the mean of a micro-step arrives in one place and is added to
// an f32 sum; with a single micro-step what arrived is the result. As a tree (elastic determinism):
// the sums over ranks, in f32 and unrounded, are neighbours among the step's k·N contributions, so
// they are what the tree's lower levels leave, and the micro-steps are its upper levels. Any N that
// divides k·N gives the same tree. Of it only the subtrees that aren't joined yet exist, as in a
// binary counter: micro-step j (from 0) finds as many as j has bits set.
#pragma once
#include <vector>

#include "core/tensor.h"

namespace sg::dist {

class MicroStepSum {
 public:
  MicroStepSum() = default;
  // arrival (n); sum (n) f32, undefined where there is but one micro-step.
  static MicroStepSum left_to_right(Tensor arrival, Tensor sum);
  // levels: tree_levels(micro_steps) arrays of (n) f32.
  static MicroStepSum tree(std::vector<Tensor> levels, int micro_steps);
  static int tree_levels(int micro_steps);  // ⌊log2 k⌋ + 1

  const Tensor& arrival(int micro_step) const;  // where what crosses in this micro-step goes
  void arrived(int micro_step);                 // it is there; micro-steps in order
  const Tensor& total() const;                  // (n), after the last one

 private:
  int micro_steps_ = 1;
  std::vector<Tensor> levels_;  // of a tree
  Tensor arrival_, sum_;        // left to right
};

}  // namespace sg::dist

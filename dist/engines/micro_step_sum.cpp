#include "dist/engines/micro_step_sum.h"

#include <bit>

#include "core/error.h"
#include "core/ops.h"

namespace sg::dist {
namespace {

// As many as there are subtrees that aren't joined yet when micro-step j begins.
int open_subtrees(int micro_step) {
  return std::popcount(static_cast<unsigned>(micro_step));
}

}  // namespace

MicroStepSum MicroStepSum::left_to_right(Tensor arrival, Tensor sum) {
  MicroStepSum result;
  result.arrival_ = std::move(arrival);
  result.sum_ = std::move(sum);
  return result;
}

MicroStepSum MicroStepSum::tree(std::vector<Tensor> levels, int micro_steps) {
  invariant(std::ssize(levels) == tree_levels(micro_steps),
            "micro-step sum: {} levels for {} micro-steps",
            levels.size(),
            micro_steps);
  MicroStepSum result;
  result.levels_ = std::move(levels);
  result.micro_steps_ = micro_steps;
  return result;
}

int MicroStepSum::tree_levels(int micro_steps) {
  return std::bit_width(static_cast<unsigned>(micro_steps));
}

const Tensor& MicroStepSum::arrival(int micro_step) const {
  return levels_.empty() ? arrival_ : levels_[open_subtrees(micro_step)];
}

void MicroStepSum::arrived(int micro_step) {
  if (!levels_.empty()) {
    // Subtrees of equal size join, smallest first; after the last micro-step all do: an odd one is
    // carried up.
    const int top = open_subtrees(micro_step);
    const bool last = micro_step + 1 == micro_steps_;
    const int left = last ? 0 : open_subtrees(micro_step + 1) - 1;
    for (int i = top; i > left; --i)
      accumulate_(levels_[i - 1], levels_[i]);
  } else if (sum_.defined()) {
    if (micro_step == 0)
      copy_(sum_, arrival_);
    else
      accumulate_(sum_, arrival_);
  }
}

const Tensor& MicroStepSum::total() const {
  if (!levels_.empty())
    return levels_[0];
  return sum_.defined() ? sum_ : arrival_;
}

}  // namespace sg::dist

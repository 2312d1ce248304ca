// The global gradient norm over ranks, with the same bits however gradients are split (numerics,
// rule 5; optim/clip.h has the tree).
#pragma once
#include <span>
#include <string>
#include <vector>

#include "dist/engines/flat_space.h"
#include "optim/clip.h"

namespace sg::dist {

class GradientNorm {
 public:
  // held[r]: the runs of parameters whose gradients rank r gives, in its order; together every
  // element once.
  GradientNorm(const FlatSpace& space, std::vector<std::vector<Slice>> held);

  // 1 where every rank holds everything and `held` was given once, else the group's size.
  int ranks() const { return static_cast<int>(held_.size()); }
  // A rank's contribution: the subtree roots of its runs' gradients (one-dimensional, in
  // held[rank]'s order).
  std::vector<double> roots(int rank, std::span<const Tensor> gradients) const;
  // From every rank's roots, each parameter's Σ x², in registration order. Not finite exactly when
  // an element isn't.
  std::vector<double> parameter_sums(std::span<const std::vector<double>> roots) const;
  // The name of the first parameter whose sum isn't finite; empty where all are.
  std::string first_nonfinite(std::span<const double> parameter_sums) const;

 private:
  const FlatSpace& space_;
  std::vector<std::vector<Slice>> held_;
};

}  // namespace sg::dist

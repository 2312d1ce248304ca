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
  // Of the gradients of a space's shards, of which every rank gives its own. `space` outlives it.
  GradientNorm(const FlatSpace& space, int world);

  // One where every rank has every gradient, else the group's size.
  int ranks() const { return std::ssize(ranges_); }
  // A rank's contribution: the subtree roots of its gradients, one for each of its shards.
  std::vector<double> roots(int rank, std::span<const Tensor> gradients) const;
  // From every rank's roots, each parameter's Σ x², in registration order. Not finite exactly when
  // an element isn't.
  std::vector<double> parameter_sums(std::span<const std::vector<double>> roots) const;
  // The name of the first parameter whose sum isn't finite; empty where all are.
  std::string first_nonfinite(std::span<const double> parameter_sums) const;

 private:
  std::vector<optim::Subtree> subtrees_of(const ParameterRange& range,
                                          std::span<const double> sums) const;

  const FlatSpace& space_;
  std::vector<std::vector<Shard>> shards_;           // by rank
  std::vector<std::vector<ParameterRange>> ranges_;  // of these shards
};

}  // namespace sg::dist

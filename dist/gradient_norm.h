// The global gradient norm, with the same bits however gradients are split over ranks (numerics, rule 5): sums of
// squares of chunks of norm_chunk elements add up as a fixed tree per parameter, the parameters' sums as a tree in
// registration order. A rank contributes the roots of the largest aligned subtrees that it holds whole.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "dist/flat_space.h"

namespace sg::dist {

class GradientNorm {
 public:
  // held[r]: the runs of parameters that rank r holds, in the order in which it will give their gradients; together
  // every element of every parameter once.
  GradientNorm(const FlatSpace& space, std::vector<std::vector<Slice>> held);

  // This rank's contribution: the subtree roots of its runs' gradients (one-dimensional, in held[rank]'s order).
  std::vector<double> roots(int rank, std::span<const Tensor> gradients) const;
  // How many numbers roots() of a rank has.
  size_t root_count(int rank) const { return nodes_[static_cast<size_t>(rank)].size(); }
  // 1 where every rank holds everything and `held` was given once, else the group's size.
  int ranks() const { return static_cast<int>(held_.size()); }
  // Σ x² of everything, from every rank's roots. Not finite exactly when an element isn't.
  double sum(std::span<const std::vector<double>> roots) const;
  // The name of the first parameter, in registration order, whose sum isn't finite; empty where all are.
  std::string first_nonfinite(std::span<const std::vector<double>> roots) const;

 private:
  // The subtree over chunks [index·2^level, (index+1)·2^level) of a parameter, cut at its last chunk.
  struct Node {
    int position;
    int level;
    int64_t index;
    double value = 0;
  };
  std::vector<double> parameter_sums(std::span<const std::vector<double>> roots) const;  // in registration order
  double parameter_sum(int position, std::vector<Node>& nodes) const;

  const FlatSpace& space_;
  std::vector<std::vector<Slice>> held_;
  std::vector<std::vector<Node>> nodes_;  // by rank
};

}  // namespace sg::dist

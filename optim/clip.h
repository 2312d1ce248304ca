// The global gradient norm, with the same bits however parameters are split over ranks, and the
// factor that clips.
//
// A parameter is cut into chunks of norm_chunk elements. Their sums of squares add up as a binary
// tree: adjacent pairs, an odd last one carried up; then the parameters' sums, in registration
// order, likewise. A rank that holds some of a parameter's chunks sends only the sums of the
// largest subtrees that it holds whole.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "core/tensor.h"
#include "kernels/table.h"

namespace sg::optim {

// The sum over chunks begin … end−1, which are one node of the parameter's tree.
struct Subtree {
  int64_t begin = 0, end = 0;
  double sum = 0;
};

inline int64_t chunks_of(int64_t elements) {
  return (elements + norm_chunk - 1) / norm_chunk;
}

// The largest whole subtrees of a run of chunks, in order. `sums` are the chunks first, first + 1,
// … of a parameter of `total`.
std::vector<Subtree> subtrees(std::span<const double> sums, int64_t first, int64_t total);
// Their sum, which is tree_sum of all chunks. `parts` are in order and cover 0 … total−1; anything
// else is a Bug.
double join(std::span<const Subtree> parts, int64_t total);

// Sums of squares by chunk of a dense one-dimensional gradient; zeros on meta.
std::vector<double> chunk_sums(const Tensor& gradient);

// `more` times the norm of gradients that are `scale` times too large, from their parameters' sums
// of squares.
double global_norm(std::span<const double> parameter_sums, double scale = 1, double more = 1);
// What the optimizer multiplies gradients by: more · min(1, clip / (norm + 1e-6)) / scale, or more
// / scale where clip is 0 (off).
float clip_factor(double norm, double clip, double scale = 1, double more = 1);

}  // namespace sg::optim

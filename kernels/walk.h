// Walking several operands of one shape whose strides differ. SG_ISA is the backend's namespace.
#pragma once
#include "kernels/dtype.h"
#include "kernels/view.h"

namespace sg::kernels::SG_ISA {

// The common shape of N operands with as few dimensions as their strides allow: at least one, the
// last is the inner one. Dimensions are ordered by operand 0's strides, so that it is walked in
// memory order.
template <int N>
struct Walk {
  int rank = 0;
  int64_t shape[max_rank] = {};
  int64_t strides[N][max_rank] = {};

  SG_INLINE int64_t inner() const { return shape[rank - 1]; }
  SG_INLINE int64_t inner_stride(int k) const { return strides[k][rank - 1]; }
  SG_INLINE int64_t rows() const {
    int64_t n = 1;
    for (int d = 0; d + 1 < rank; ++d)
      n *= shape[d];
    return n;
  }
  // Where row `row` of every operand begins.
  SG_INLINE void seek(int64_t row, int64_t (&offsets)[N]) const {
    for (int k = 0; k < N; ++k)
      offsets[k] = 0;
    for (int d = rank - 2; d >= 0; --d) {
      const int64_t i = row % shape[d];
      row /= shape[d];
      for (int k = 0; k < N; ++k)
        offsets[k] += i * strides[k][d];
    }
  }
};

template <int N>
inline Walk<N> walk_of(const View* const (&operands)[N]) {
  Walk<N> walk;
  const View& first = *operands[0];
  int order[max_rank];
  int count = 0;
  for (int d = 0; d < first.rank; ++d) {
    if (first.shape[d] == 1)
      continue;
    int at = count++;
    for (; at > 0 && first.strides[order[at - 1]] < first.strides[d]; --at)
      order[at] = order[at - 1];
    order[at] = d;
  }
  for (int i = 0; i < count; ++i) {
    const int d = order[i];
    const int last = walk.rank - 1;
    bool joins = last >= 0;  // the dimension before continues this one in every operand
    for (int k = 0; joins && k < N; ++k)
      joins = walk.strides[k][last] == operands[k]->strides[d] * first.shape[d];
    const int target = joins ? last : walk.rank++;
    walk.shape[target] = joins ? walk.shape[last] * first.shape[d] : first.shape[d];
    for (int k = 0; k < N; ++k)
      walk.strides[k][target] = operands[k]->strides[d];
  }
  if (walk.rank == 0)
    walk.shape[walk.rank++] = 1;
  return walk;
}

}  // namespace sg::kernels::SG_ISA

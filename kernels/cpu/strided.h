// Sharing a walk over several operands among threads.
#pragma once
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/runtime/parallel.h"
#include "kernels/walk.h"

namespace sg::kernels::SG_ISA {

inline constexpr int64_t pointwise_chunk = 16384;  // elements per task; results don't depend on it

// body(offsets, n): n elements along the inner dimension from the given offset of each operand. Rows longer than a task
// are cut, short ones are grouped.
template <int N, class F>
inline void for_rows(StreamHandle stream, const Walk<N>& walk, F&& body) {
  const int64_t rows = walk.rows(), inner = walk.inner();
  if (rows == 0 || inner == 0) return;
  const int64_t pieces = (inner + pointwise_chunk - 1) / pointwise_chunk;
  const int64_t per_task = inner >= pointwise_chunk ? 1 : pointwise_chunk / inner;
  parallel_chunks(stream, rows * pieces, per_task, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      int64_t offsets[N];
      walk.seek(i / pieces, offsets);
      const int64_t start = i % pieces * pointwise_chunk;
      for (int k = 0; k < N; ++k) offsets[k] += start * walk.inner_stride(k);
      body(offsets, inner - start < pointwise_chunk ? inner - start : pointwise_chunk);
    }
  });
}

}  // namespace sg::kernels::SG_ISA

// Sharing a walk over several operands among threads.
#pragma once
#include "kernels/cpu/runtime/parallel.h"
#include "kernels/entries.h"
#include "kernels/walk.h"

namespace sg::kernels::SG_ISA {

// body(offsets, n): n elements along the inner dimension from the given offset of each operand.
// Rows longer than a task are cut, short ones are grouped.
template <int N, class F>
inline void for_rows(StreamHandle stream, const Walk<N>& walk, F&& body) {
  const int64_t rows = walk.rows(), inner = walk.inner();
  if (rows == 0 || inner == 0)
    return;
  const plan::Chunks row = plan::elements(inner);
  const int64_t pieces = row.count();
  parallel_chunks(
      stream, plan::rows(rows * pieces, row.size(0)), [&](int64_t begin, int64_t end, int) {
        for (int64_t i = begin; i < end; ++i) {
          int64_t offsets[N];
          walk.seek(i / pieces, offsets);
          const int64_t piece = i % pieces, start = piece * row.each;
          for (int k = 0; k < N; ++k)
            offsets[k] += start * walk.inner_stride(k);
          body(offsets, row.size(piece));
        }
      });
}

// y[i · y_stride] = x[i · x_stride] for elements of whatever type with `size` bytes.
template <size_t size>
inline void copy_elements(const void* x, int64_t x_stride, void* y, int64_t y_stride, int64_t n) {
  const auto loop = [&](auto from, auto to) {
    for (int64_t i = 0; i < n; ++i) {
      __builtin_memcpy(static_cast<char*>(y) + i * to * size,
                       static_cast<const char*>(x) + i * from * size,
                       size);
    }
  };
  constexpr std::integral_constant<int64_t, 0> once;
  constexpr std::integral_constant<int64_t, 1> dense;
  if (x_stride == 0 && y_stride == 1)
    loop(once, dense);
  else if (y_stride == 1)
    loop(x_stride, dense);
  else
    loop(x_stride, y_stride);
}
inline void copy_elements(
    size_t size, const void* x, int64_t x_stride, void* y, int64_t y_stride, int64_t n) {
  if (x_stride == 1 && y_stride == 1)
    __builtin_memcpy(y, x, static_cast<size_t>(n) * size);
  else if (size == 1)
    copy_elements<1>(x, x_stride, y, y_stride, n);
  else if (size == 2)
    copy_elements<2>(x, x_stride, y, y_stride, n);
  else if (size == 4)
    copy_elements<4>(x, x_stride, y, y_stride, n);
  else
    copy_elements<8>(x, x_stride, y, y_stride, n);
}

}  // namespace sg::kernels::SG_ISA

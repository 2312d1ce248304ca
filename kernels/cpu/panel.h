// Small products for operands that lie in cache already, without a library's packing and call: the tiles of attention.
#pragma once
#include "kernels/cpu/vec.h"

namespace sg::kernels::SG_ISA {

inline constexpr int64_t panel_step = 16;  // columns of b and c come in multiples of this

// c[rows, vectors] (+)= Σ_p a[r, p] · b[p, ·], held in registers.
template <class V, int rows, int vectors, class W>
SG_INLINE void panel_tile(int64_t k, const W* a, int64_t a_row, int64_t a_depth, const W* b, int64_t ldb, W* c,
                          int64_t ldc, bool accumulate) {
  constexpr int lanes = lanes_in<V>;
  V sum[rows][vectors];
#pragma GCC unroll 8
  for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v) sum[r][v] = accumulate ? load(c + r * ldc + v * lanes, Full{}) : V(W(0));
  }
#pragma GCC unroll 4
  for (int64_t p = 0; p < k; ++p, a += a_depth, b += ldb) {
    V x[vectors];
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v) x[v] = load(b + v * lanes, Full{});
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r) {
      const V y(a[r * a_row]);
#pragma GCC unroll 8
      for (int v = 0; v < vectors; ++v) sum[r][v] = fma(y, x[v], sum[r][v]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v) store(c + r * ldc + v * lanes, sum[r][v], Full{});
  }
}

// All rows of a few columns.
template <class V, int vectors, class W>
void panel_columns(int64_t m, int64_t k, const W* a, int64_t a_row, int64_t a_depth, const W* b, int64_t ldb, W* c,
                   int64_t ldc, bool accumulate) {
  int64_t i = 0;
  const auto rows = [&]<int count>() {
    panel_tile<V, count, vectors>(k, a + i * a_row, a_row, a_depth, b, ldb, c + i * ldc, ldc, accumulate);
    i += count;
  };
  while (i + 6 <= m) rows.template operator()<6>();
  switch (m - i) {
    case 5: return rows.template operator()<5>();
    case 4: return rows.template operator()<4>();
    case 3: return rows.template operator()<3>();
    case 2: return rows.template operator()<2>();
    case 1: return rows.template operator()<1>();
    default: return;
  }
}

// c (m,n) (+)= a (m,k) · b (k,n). Element (i, p) of a is a[i·a_row + p·a_depth]; b and c are row-major, n a multiple of
// panel_step.
template <class W>
void panel_product(int64_t m, int64_t n, int64_t k, const W* a, int64_t a_row, int64_t a_depth, const W* b, int64_t ldb,
                   W* c, int64_t ldc, bool accumulate) {
  using V = Lanes<W>;
  constexpr int lanes = lanes_in<V>, widest = lanes == 16  ? 4
                                              : lanes == 8 ? 2
                                                           : 4;  // six rows of these fill the registers
  int64_t j = 0;
  for (; j + widest * lanes <= n; j += widest * lanes) {
    panel_columns<V, widest>(m, k, a, a_row, a_depth, b + j, ldb, c + j, ldc, accumulate);
  }
  if constexpr (lanes == 16) {
    const auto rest = [&]<int count>() {
      panel_columns<V, count>(m, k, a, a_row, a_depth, b + j, ldb, c + j, ldc, accumulate);
    };
    switch ((n - j) / lanes) {
      case 3: return rest.template operator()<3>();
      case 2: return rest.template operator()<2>();
      case 1: return rest.template operator()<1>();
      default: return;
    }
  }
}

}  // namespace sg::kernels::SG_ISA

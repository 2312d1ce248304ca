// Small products for operands that lie in cache already, without a library's packing and call: the
// tiles of attention.
#pragma once
#include "kernels/cpu/vec.h"

namespace sg::kernels::SG_ISA {

inline constexpr int64_t panel_step = 16;  // columns of b and c come in multiples of this

// out (columns, rows) = scale · fromᵀ of from (rows, columns); their rows are ld and ldo elements
// apart.
template <class W>
void turn(const W* from, int64_t ld, int64_t rows, int64_t columns, W scale, W* out, int64_t ldo) {
  using V = Lanes<W>;
  constexpr int lanes = lanes_in<V>;
  // What doesn't fill vectors, columns from `first` on.
  const auto rest = [&](int64_t begin, int64_t end, int64_t first) {
    for (int64_t c = first; c < columns; ++c) {
      for (int64_t i = begin; i < end; ++i)
        out[c * ldo + i] = scale * from[i * ld + c];
    }
  };
  int64_t i = 0;
  if constexpr (lanes > 1) {
    const int64_t fours = columns / 4 * 4;
    for (; i + lanes <= rows; i += lanes) {
      for (int64_t c = 0; c < fours; c += 4) {
        V x[4];
        load_columns(from + i * ld + c, ld, x);
        for (int n = 0; n < 4; ++n)
          store(out + (c + n) * ldo + i, x[n] * V(scale), Full{});
      }
      rest(i, i + lanes, fours);
    }
  }
  rest(i, rows, 0);
}

// c[rows, vectors] (+)= Σ_p a[r, p] · b[p, ·], held in registers.
template <class V, int rows, int vectors, class W>
SG_INLINE void panel_tile(int64_t k,
                          const W* a,
                          int64_t a_row,
                          int64_t a_depth,
                          const W* b,
                          int64_t ldb,
                          W* c,
                          int64_t ldc,
                          bool accumulate) {
  constexpr int lanes = lanes_in<V>;
  V sum[rows][vectors];
#pragma GCC unroll 8
  for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v)
      sum[r][v] = accumulate ? load(c + r * ldc + v * lanes, Full{}) : V(W(0));
  }
#pragma GCC unroll 4
  for (int64_t p = 0; p < k; ++p, a += a_depth, b += ldb) {
    V x[vectors];
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v)
      x[v] = load(b + v * lanes, Full{});
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r) {
      const V y(a[r * a_row]);
#pragma GCC unroll 8
      for (int v = 0; v < vectors; ++v)
        sum[r][v] = fma(y, x[v], sum[r][v]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v)
      store(c + r * ldc + v * lanes, sum[r][v], Full{});
  }
}

// All rows of a few columns.
template <class V, int vectors, class W>
void panel_columns(int64_t m,
                   int64_t k,
                   const W* a,
                   int64_t a_row,
                   int64_t a_depth,
                   const W* b,
                   int64_t ldb,
                   W* c,
                   int64_t ldc,
                   bool accumulate) {
  int64_t i = 0;
  const auto rows = [&]<int count>() {
    panel_tile<V, count, vectors>(
        k, a + i * a_row, a_row, a_depth, b, ldb, c + i * ldc, ldc, accumulate);
    i += count;
  };
  while (i + 6 <= m)
    rows.template operator()<6>();
  switch (m - i) {
    case 5: return rows.template operator()<5>();
    case 4: return rows.template operator()<4>();
    case 3: return rows.template operator()<3>();
    case 2: return rows.template operator()<2>();
    case 1: return rows.template operator()<1>();
    default: return;
  }
}

// c (m,n) (+)= a (m,k) · b (k,n). Element (i, p) of a is a[i·a_row + p·a_depth]; b and c are
// row-major, n a multiple of panel_step.
template <class W>
void panel_product(int64_t m,
                   int64_t n,
                   int64_t k,
                   const W* a,
                   int64_t a_row,
                   int64_t a_depth,
                   const W* b,
                   int64_t ldb,
                   W* c,
                   int64_t ldc,
                   bool accumulate) {
  using V = Lanes<W>;
  constexpr int lanes = lanes_in<V>, widest = lanes == 16 ? 4
                                              : lanes == 8
                                                  ? 2
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

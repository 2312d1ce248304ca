// Rows of a matrix: sums over a row, sums over columns, and the fixed grids that both are computed
// on.
#pragma once
#include "kernels/cpu/runtime/parallel.h"
#include "kernels/cpu/runtime/plan.h"
#include "kernels/cpu/vec.h"
#include "kernels/entries.h"

namespace sg::kernels::SG_ISA {

// A view (…, n) as rows of n.
SG_INLINE int64_t row_size(const View& x) {
  return x.rank == 0 ? 1 : x.shape[x.rank - 1];
}
SG_INLINE int64_t row_count(const View& x) {
  int64_t rows = 1;
  for (int d = 0; d + 1 < x.rank; ++d)
    rows *= x.shape[d];
  return rows;
}

// Σ f(i, part) over the lanes of [0, n): four accumulators, added up in a fixed order. f is ignored
// beyond its part.
template <class V, class F>
SG_INLINE auto sum_lanes(int64_t n, F&& f) {
  constexpr int lanes = lanes_in<V>;
  V sums[4] = {V(0), V(0), V(0), V(0)};
  int64_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    for (int k = 0; k < 4; ++k)
      sums[k] = sums[k] + f(i + k * lanes, Full{});
  }
  for_lanes<V>(
      n - i, [&](int64_t j, auto part) { sums[0] = sums[0] + within(f(i + j, part), V(0), part); });
  return horizontal_sum((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

// body(row) over all rows.
template <class F>
inline void for_each_row(StreamHandle stream, int64_t rows, int64_t n, F&& body) {
  parallel_chunks(stream, plan::rows(rows, n), [&](int64_t begin, int64_t end, int) {
    for (int64_t row = begin; row < end; ++row)
      body(row);
  });
}

// `rows(begin, end, partial)` adds its rows to partial sums of `arrays` × n, which start at zero;
// the totals go to outs[k] (n), if they are not null.
template <class T, int arrays, class F>
inline void column_sums(int64_t row_total,
                        int64_t n,
                        T* const (&outs)[arrays],
                        Workspace workspace,
                        StreamHandle stream,
                        F&& rows) {
  using V = Lanes<T>;
  using S = Statistic<T>;
  const plan::ColumnSums cuts = plan::column_sums(row_total, n);
  const int64_t chunks = cuts.rows.count();
  S* const partials = static_cast<S*>(workspace.data);
  parallel_chunks(stream, cuts.rows, [&](int64_t begin, int64_t end, int) {
    S* const partial = partials + begin / cuts.rows.each * arrays * n;
    __builtin_memset(partial, 0, static_cast<size_t>(arrays * n) * sizeof(S));
    rows(begin, end, partial);
  });
  parallel_chunks(stream, cuts.columns, [&](int64_t left, int64_t right, int) {
    for (int k = 0; k < arrays; ++k) {
      if (!outs[k])
        continue;
      for_lanes<V>(right - left, [&](int64_t j, auto part) {
        const S* p = partials + k * n + left + j;
        V sum(0);
        for (int64_t c = 0; c < chunks; ++c, p += arrays * n)
          sum = sum + load(p, part);
        store(outs[k] + left + j, sum, part);
      });
    }
  });
}
template <class T>
SG_INLINE size_t column_sums_bytes(const View& x, int arrays) {
  const int64_t chunks = plan::column_sums(row_count(x), row_size(x)).rows.count();
  return static_cast<size_t>(chunks * row_size(x) * arrays) * sizeof(Statistic<T>);
}

// The value that a store to T and a load would give back.
template <class T, class V>
SG_INLINE V rounded(V x) {
  if constexpr (std::is_same_v<T, bf16>)
    return from_bf16(to_bf16(x));
  else if constexpr (std::is_same_v<T, f16>)
    return from_f16(to_f16(x));
  else
    return x;
}

}  // namespace sg::kernels::SG_ISA

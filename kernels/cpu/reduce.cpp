// Reductions over any dimensions, and argmax.
//
// Dimensions are split into those kept and those reduced, each ordered by x's strides and merged.
// Where the dense dimension is reduced, vectors run along it; where it is kept, they run across
// columns. Blocks of at most `block` terms add up in the lanes' type; block sums add up in f64
// (rows) or in a second accumulator (columns), so that long sums stay accurate.
#include "kernels/cpu/rows.h"
#include "kernels/cpu/strided.h"
#include "kernels/entries.h"

namespace sg::kernels::SG_ISA {
namespace {

constexpr int64_t block = 4096;       // terms of a row that are added in lanes
constexpr int64_t column_block = 64;  // terms of a column that are added to one accumulator
constexpr int64_t many_outputs =
    16;  // from here on tasks are outputs, below they are pieces of one output
constexpr int64_t most_pieces = 64;
constexpr int64_t piece_at_least = 16384;

// Maximum and minimum give NaN where any term is.
template <ReduceOp op, class V>
SG_INLINE V combine(V a, V b) {
  if constexpr (op == ReduceOp::sum)
    return a + b;
  else if constexpr (op == ReduceOp::max)
    return element::Functor<PointwiseOp::maximum>{}(a, b);
  else
    return element::Functor<PointwiseOp::minimum>{}(a, b);
}
template <class T>
using Total = std::conditional_t<std::is_integral_v<T>, int64_t, double>;

// The smallest value of a type, or the largest: what a maximum, or a minimum, starts from.
template <ReduceOp op, class T>
constexpr T start_value() {
  if constexpr (op == ReduceOp::sum)
    return T(0);
  else if constexpr (std::is_floating_point_v<T>)
    return op == ReduceOp::max ? -T(__builtin_inff()) : T(__builtin_inff());
  else
    return op == ReduceOp::max ? T(1) << (8 * sizeof(T) - 1) : ~(T(1) << (8 * sizeof(T) - 1));
}

template <ReduceOp op, class T>
struct Reduction {
  using V = Lanes<T>;
  using S = std::conditional_t<std::is_same_v<V, Vec>, float, T>;
  static SG_INLINE V start() { return V(start_value<op, S>()); }

  const T* x;
  T* out;
  Walk<2> kept;     // out, x
  Walk<1> reduced;  // x
  int64_t terms;
  bool mean;  // the sum is divided by the number of terms

  SG_INLINE T finish(Total<T> total) const {
    if (mean)
      total = total / static_cast<Total<T>>(terms);
    if constexpr (std::is_same_v<V, Vec>)
      return T(static_cast<float>(total));
    else
      return static_cast<T>(total);
  }

  // n ≤ block terms at a stride.
  SG_INLINE Total<T> block_of(const T* p, int64_t stride, int64_t n) const {
    V lanes[4] = {start(), start(), start(), start()};
    if (stride == 1) {
      int64_t i = 0;
      constexpr int64_t step = lanes_in<V>;
      for (; i + 4 * step <= n; i += 4 * step) {
        for (int k = 0; k < 4; ++k)
          lanes[k] = combine<op>(lanes[k], load(p + i + k * step, Full{}));
      }
      for_lanes<V>(n - i, [&](int64_t j, auto part) {
        lanes[0] = combine<op>(lanes[0], within(load(p + i + j, part), start(), part));
      });
    } else {
      for (int64_t i = 0; i < n; ++i) {
        if constexpr (std::is_same_v<V, Vec>)
          lanes[0] = combine<op>(lanes[0],
                                 within(Vec(static_cast<float>(p[i * stride])), start(), Part(1)));
        else
          lanes[0] = combine<op>(lanes[0], p[i * stride]);
      }
    }
    return fold(combine<op>(combine<op>(lanes[0], lanes[1]), combine<op>(lanes[2], lanes[3])));
  }
  SG_INLINE Total<T> fold(V lanes) const {
    if constexpr (std::is_same_v<V, Vec>) {
      if constexpr (op == ReduceOp::sum)
        return horizontal_sum(lanes);
      float value[Vec::lanes];
      store(value, lanes, Full{});
      for (int i = 1; i < Vec::lanes; ++i)
        value[0] = combine<op>(value[0], value[i]);
      return value[0];
    } else {
      return lanes;
    }
  }

  // Terms begin … end − 1 of the output whose terms start at p.
  Total<T> terms_of(const T* p, int64_t begin, int64_t end) const {
    const int64_t inner = reduced.inner(), stride = reduced.inner_stride(0);
    Total<T> total = start_value<op, Total<T>>();
    while (begin < end) {
      int64_t offsets[1];
      reduced.seek(begin / inner, offsets);
      const int64_t at = begin % inner;
      int64_t n = inner - at < end - begin ? inner - at : end - begin;
      if (n > block)
        n = block;
      total = combine<op>(total, block_of(p + offsets[0] + at * stride, stride, n));
      begin += n;
    }
    return total;
  }

  // Few outputs: each is cut into pieces for all threads.
  void by_pieces(StreamHandle stream) const {
    int64_t piece = (terms + most_pieces - 1) / most_pieces;
    if (piece < piece_at_least)
      piece = piece_at_least;
    const int64_t pieces = (terms + piece - 1) / piece;
    for_outputs(0, outputs(), [&](T* y, const T* p) {
      Total<T> totals[most_pieces];
      parallel_chunks(stream, terms, piece, [&](int64_t begin, int64_t end, int) {
        totals[begin / piece] = terms_of(p, begin, end);
      });
      Total<T> total = start_value<op, Total<T>>();
      for (int64_t i = 0; i < pieces; ++i)
        total = combine<op>(total, totals[i]);
      *y = finish(total);
    });
  }

  int64_t outputs() const { return kept.rows() * kept.inner(); }
  template <class F>
  SG_INLINE void for_outputs(int64_t begin, int64_t end, F&& body) const {
    for (int64_t i = begin; i < end; ++i) {
      int64_t offsets[2];
      kept.seek(i / kept.inner(), offsets);
      const int64_t at = i % kept.inner();
      body(out + offsets[0] + at * kept.inner_stride(0),
           x + offsets[1] + at * kept.inner_stride(1));
    }
  }

  void by_outputs(StreamHandle stream) const {
    const int64_t per_task = terms >= piece_at_least ? 1 : piece_at_least / (terms > 0 ? terms : 1);
    parallel_chunks(stream, outputs(), per_task, [&](int64_t begin, int64_t end, int) {
      for_outputs(begin, end, [&](T* y, const T* p) { *y = finish(terms_of(p, 0, terms)); });
    });
  }

  // Strips of dense columns: x and out both have stride 1 along kept's inner dimension.
  void by_columns(StreamHandle stream) const {
    constexpr int64_t width = 4 * lanes_in<V>;
    const int64_t columns = kept.inner(), strips = (columns + width - 1) / width;
    parallel_for(stream, kept.rows() * strips, [&](int64_t task, int) {
      int64_t offsets[2];
      kept.seek(task / strips, offsets);
      const int64_t left = task % strips * width,
                    n = columns - left < width ? columns - left : width;
      column_strip(x + offsets[1] + left, out + offsets[0] + left, n);
    });
  }
  SG_INLINE void column_strip(const T* p, T* y, int64_t n) const {
    const int64_t inner = reduced.inner(), stride = reduced.inner_stride(0);
    V totals[4] = {start(), start(), start(), start()};
    for (int64_t row = 0; row < reduced.rows(); ++row) {
      int64_t offsets[1];
      reduced.seek(row, offsets);
      for (int64_t first = 0; first < inner; first += column_block) {
        const int64_t last = first + column_block < inner ? first + column_block : inner;
        V sums[4] = {start(), start(), start(), start()};
        for (int64_t i = first; i < last; ++i) {
          const T* const terms_row = p + offsets[0] + i * stride;
          for_lanes<V>(n, [&](int64_t j, auto part) {
            V& sum = sums[j / lanes_in<V>];
            sum = combine<op>(sum, load(terms_row + j, part));
          });
        }
        for (int k = 0; k < 4; ++k)
          totals[k] = combine<op>(totals[k], sums[k]);
      }
    }
    for_lanes<V>(n, [&](int64_t j, auto part) {
      V total = totals[j / lanes_in<V>];
      if (mean)
        total = total / V(static_cast<S>(terms));
      store(y + j, total, part);
    });
  }
};

// x's dimensions that `keep` selects, as a view; out's beside it.
SG_INLINE void select_dims(
    const View& x, const View& out, bool keep, View& x_part, View& out_part) {
  x_part.rank = out_part.rank = 0;
  for (int d = 0; d < x.rank; ++d) {
    const bool reduced = out.shape[d] == 1 && x.shape[d] != 1;
    if (reduced == keep)
      continue;
    const int to = x_part.rank++;
    out_part.rank = x_part.rank;
    x_part.shape[to] = out_part.shape[to] = x.shape[d];
    x_part.strides[to] = x.strides[d];
    out_part.strides[to] = out.strides[d];
  }
}

template <ReduceOp op, class T>
void reduce_by(const View& x, const View& out, bool mean, StreamHandle stream) {
  View x_kept, out_kept, x_reduced, unused;
  select_dims(x, out, true, x_kept, out_kept);
  select_dims(x, out, false, x_reduced, unused);
  const bool divisible =
      !std::is_integral_v<T> || x_reduced.numel() > 0;  // a float mean of nothing is NaN
  Reduction<op, T> reduction{x.as<T>(),
                             out.as<T>(),
                             walk_of({&out_kept, &x_kept}),
                             walk_of({&x_reduced}),
                             x_reduced.numel(),
                             mean && divisible};
  const auto& kept = reduction.kept;
  const bool columns = kept.inner_stride(0) == 1 && kept.inner_stride(1) == 1 &&
                       reduction.reduced.inner_stride(0) != 1 && kept.inner() > 1;
  if (out_kept.numel() == 0)
    return;
  if (columns)
    reduction.by_columns(stream);
  else if (reduction.outputs() < many_outputs)
    reduction.by_pieces(stream);
  else
    reduction.by_outputs(stream);
}

}  // namespace

template <class T>
void reduce(ReduceOp op, const View& x, const View& out, StreamHandle stream) {
  switch (op) {
    case ReduceOp::sum: return reduce_by<ReduceOp::sum, T>(x, out, false, stream);
    case ReduceOp::mean: return reduce_by<ReduceOp::sum, T>(x, out, true, stream);
    case ReduceOp::max: return reduce_by<ReduceOp::max, T>(x, out, false, stream);
    case ReduceOp::min: return reduce_by<ReduceOp::min, T>(x, out, false, stream);
  }
}

template <class T>
void argmax(const View& x, const View& indices, StreamHandle stream) {
  const int64_t n = row_size(x);
  for_each_row(stream, row_count(x), n, [&](int64_t row) {
    const T* const in = x.as<T>() + row * n;
    const auto value = [&](int64_t i) { return static_cast<Statistic<T>>(in[i]); };
    int64_t best = 0;
    for (int64_t i = 1; i < n; ++i) {
      if (value(i) > value(best))
        best = i;
    }
    indices.as<int64_t>()[row] = best;
  });
}

SG_FOR_FLOATS(reduce)
template void reduce<int32_t>(ReduceOp, const View&, const View&, StreamHandle);
template void reduce<int64_t>(ReduceOp, const View&, const View&, StreamHandle);
SG_FOR_FLOATS(argmax)

}  // namespace sg::kernels::SG_ISA

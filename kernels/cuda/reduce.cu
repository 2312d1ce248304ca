// Reductions over any dimensions, and argmax.
//
// Dimensions are split into those kept and those reduced, each ordered by x's strides and merged.
// Where the dense dimension is kept, lanes run across columns and lines of threads share the terms;
// else a block has an output and its threads share the terms. Sums are f64, or i64: long ones stay
// accurate, and their order depends on shapes alone.
#include "kernels/cuda/rows.h"
#include "kernels/entries.h"
#include "kernels/pointwise.h"
#include "kernels/walk.h"

namespace sg::kernels::cuda {
namespace {

constexpr int threads = 256;
constexpr int lines = threads / warp_lanes;

template <class T>
using Total = std::conditional_t<std::is_integral_v<T>, int64_t, double>;

// Maximum and minimum give NaN where any term is.
template <ReduceOp op, class S>
struct Combine {
  __device__ S operator()(S a, S b) const {
    if constexpr (op == ReduceOp::sum)
      return a + b;
    else if constexpr (op == ReduceOp::max)
      return element::Functor<PointwiseOp::maximum>{}(a, b);
    else
      return element::Functor<PointwiseOp::minimum>{}(a, b);
  }
};

// What changes nothing: for integers the smallest or largest value of T itself, which a maximum or
// minimum of nothing gives.
template <ReduceOp op, class T>
__device__ Total<T> start_value() {
  using S = Total<T>;
  if constexpr (op == ReduceOp::sum)
    return S(0);
  else if constexpr (std::is_integral_v<T>)
    return op == ReduceOp::max ? S(T(1) << (8 * sizeof(T) - 1)) : S(~(T(1) << (8 * sizeof(T) - 1)));
  else
    return op == ReduceOp::max ? -S(INFINITY) : S(INFINITY);
}

template <class T>
struct Reduction {
  const T* x;
  T* out;
  Walk<2> kept;     // out, x
  Walk<1> reduced;  // x
  int64_t outputs, terms;
  bool mean;  // the sum is divided by the number of terms

  // Where output i lies, and where its first term does.
  __device__ void seek(int64_t i, int64_t (&at)[2]) const {
    const int64_t row = i / kept.inner();
    kept.seek(row, at);
    for (int k = 0; k < 2; ++k)
      at[k] += (i - row * kept.inner()) * kept.inner_stride(k);
  }
  __device__ Total<T> term(int64_t first, int64_t i) const {
    int64_t at[1];
    const int64_t row = reduced.rank == 1 ? 0 : i / reduced.inner();
    reduced.seek(row, at);
    at[0] += (i - row * reduced.inner()) * reduced.inner_stride(0);
    return static_cast<Total<T>>(static_cast<Compute<T>>(read(x + first + at[0])));
  }
  __device__ void finish(int64_t at, Total<T> total) const {
    if (mean)
      total = total / static_cast<Total<T>>(terms);
    write(out + at, static_cast<T>(static_cast<Compute<T>>(total)));
  }
};

template <ReduceOp op, class T>
__global__ void __launch_bounds__(threads) reduce_kernel(Reduction<T> r) {
  constexpr Combine<op, Total<T>> combine;
  for (int64_t i = blockIdx.x; i < r.outputs; i += gridDim.x) {
    int64_t at[2];
    r.seek(i, at);
    Total<T> total = start_value<op, T>();
    for (int64_t term = threadIdx.x; term < r.terms; term += threads)
      total = combine(total, r.term(at[1], term));
    total = block_combine(total, start_value<op, T>(), combine);
    if (threadIdx.x == 0)
      r.finish(at[0], total);
  }
}

// A block has 32 outputs that are neighbours in x; each line of threads every eighth term.
template <ReduceOp op, class T>
__global__ void __launch_bounds__(threads) reduce_columns_kernel(Reduction<T> r) {
  SG_SHARED(Total<T>, totals, [threads]);
  constexpr Combine<op, Total<T>> combine;
  const int lane = threadIdx.x % warp_lanes;
  const int line = threadIdx.x / warp_lanes;
  for (int64_t first = static_cast<int64_t>(blockIdx.x) * warp_lanes; first < r.outputs;
       first += static_cast<int64_t>(gridDim.x) * warp_lanes) {
    const bool inside = first + lane < r.outputs;
    int64_t at[2] = {};
    Total<T> total = start_value<op, T>();
    if (inside)
      r.seek(first + lane, at);
    for (int64_t term = line; inside && term < r.terms; term += lines)
      total = combine(total, r.term(at[1], term));
    write(totals + threadIdx.x, total);
    __syncthreads();
    for (int other = 1; line == 0 && other < lines; ++other)
      total = combine(total, read(totals + other * warp_lanes + lane));
    if (line == 0 && inside)
      r.finish(at[0], total);
    __syncthreads();  // the next outputs overwrite `totals`
  }
}

// x's dimensions that `keep` selects, as a view; out's beside it.
void select_dims(const View& x, const View& out, bool keep, View& x_part, View& out_part) {
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
  View x_kept;
  View out_kept;
  View x_reduced;
  View unused;
  select_dims(x, out, true, x_kept, out_kept);
  select_dims(x, out, false, x_reduced, unused);
  const int64_t terms = x_reduced.numel();
  const bool divisible = !std::is_integral_v<T> || terms > 0;  // a float mean of nothing is NaN
  const Reduction<T> reduction{x.as<T>(),
                               out.as<T>(),
                               walk_of({&out_kept, &x_kept}),
                               walk_of({&x_reduced}),
                               out_kept.numel(),
                               terms,
                               mean && divisible};
  const auto& kept = reduction.kept;
  const bool columns = kept.inner_stride(1) == 1 && reduction.reduced.inner_stride(0) != 1 &&
                       kept.inner() >= warp_lanes;
  if (reduction.outputs == 0)
    return;
  const int64_t blocks = columns ? divide_up(reduction.outputs, warp_lanes) : reduction.outputs;
  launch(columns ? reduce_columns_kernel<op, T> : reduce_kernel<op, T>,
         static_cast<unsigned>(std::min<int64_t>(blocks, 4096)),
         threads,
         0,
         stream_of(stream),
         reduction);
}

// CPU's rule: a NaN never replaces another element, and a first one stays.
template <class T>
__global__ void __launch_bounds__(threads)
    argmax_kernel(const T* x, int64_t* indices, int64_t rows, int64_t n) {
  using S = Statistic<T>;
  const S lowest = -static_cast<S>(INFINITY);
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const T* const in = x + row * n;
    const S first = static_cast<S>(read(in));
    S top = lowest;
    for (int64_t i = threadIdx.x; i < n; i += threads)
      top = Most<S>{}(top, static_cast<S>(read(in + i)));
    top = block_combine(top, lowest, Most<S>{});
    int64_t best = n;
    for (int64_t i = threadIdx.x; i < n && best == n; i += threads) {
      if (static_cast<S>(read(in + i)) == top)
        best = i;
    }
    best = block_combine(best, n, Least<int64_t>{});
    const bool none = first != first || best == n;
    if (threadIdx.x == 0)
      write(indices + row, none ? int64_t{0} : best);
  }
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
  const int64_t rows = row_count(x);
  if (x.numel() == 0)
    return;
  launch(argmax_kernel<T>,
         static_cast<unsigned>(std::min<int64_t>(rows, 4096)),
         threads,
         0,
         stream_of(stream),
         x.as<T>(),
         indices.as<int64_t>(),
         rows,
         row_size(x));
}

SG_FOR_FLOATS(reduce)
template decltype(reduce<int32_t>) reduce<int32_t>;
template decltype(reduce<int64_t>) reduce<int64_t>;
SG_FOR_FLOATS(argmax)

}  // namespace sg::kernels::cuda

// Backward of the norms and of activations, and sums over rows. Blocks of a grid that depends on
// the shape alone add up their rows' column sums, in order, in partial sums of the workspace; a
// second kernel adds these up in the blocks' order.
#include <cmath>

#include "kernels/cuda/rows.h"
#include "kernels/entries.h"
#include "kernels/pointwise.h"

namespace sg::kernels::cuda {
namespace {

constexpr int64_t max_norm_blocks = 128;  // of a norm's backward: each has 2 · n partial sums
constexpr int64_t rows_of_block = 32;     // at least, of sums over rows
constexpr int64_t max_row_chunks = 128;
constexpr int strip_threads = 64;  // each has a window of columns

// outs[k] (n) = Σ over chunks of partials (chunks, arrays, n), where outs[k] isn't null.
template <class T>
struct Joined {
  T* outs[2];
};
template <class T>
__global__ void __launch_bounds__(max_row_threads) join_kernel(
    const Statistic<T>* partials, int64_t chunks, int arrays, int64_t n, Joined<T> joined) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * max_row_threads + threadIdx.x;
  const int64_t array = at / n;
  if (array >= arrays || !joined.outs[array])
    return;
  Statistic<T> sum = 0;
  for (int64_t chunk = 0; chunk < chunks; ++chunk)
    sum += read(partials + chunk * arrays * n + at);
  write(joined.outs[array] + at % n, static_cast<T>(sum));
}
template <class T>
void join(const void* partials,
          int64_t chunks,
          int arrays,
          int64_t n,
          const Joined<T>& joined,
          StreamHandle stream) {
  launch(join_kernel<T>,
         static_cast<unsigned>(divide_up(arrays * n, max_row_threads)),
         max_row_threads,
         0,
         stream_of(stream),
         static_cast<const Statistic<T>*>(partials),
         chunks,
         arrays,
         n,
         joined);
}

// ---- norms

template <class T>
struct NormBackward {
  using S = Statistic<T>;
  const T *dy, *d_sum, *x, *gain;
  const S* mean = nullptr;
  const S* rstd;
  T* dx;
  S* partials = nullptr;  // (blocks, 2, n): sums of d_gain, then d_bias
  int64_t rows = 0;
  int64_t n = 0;
  bool keeps = false;  // sums, gain and the row's e and x̂ lie in shared memory
};

// A block's memory, n elements each; normals and products are null where rows are read again.
template <class S>
struct NormSums {
  S *gain_sum, *bias_sum, *normals, *products;
};

// x̂ and e = dy·gain of a window, and dy.
template <bool centred, int W, class T, class S>
__device__ __forceinline__ void load_gradient(
    const NormBackward<T>& a, int64_t row, int64_t at, S (&dy)[W], S (&normal)[W], S (&e)[W]) {
  const S mean = centred ? read(a.mean + row) : S(0);
  const S rstd = read(a.rstd + row);
  S gains[W];
  load_window(a.dy + row * a.n, at, a.n, dy);
  load_window(a.x + row * a.n, at, a.n, normal, mean);
  load_window(a.gain, at, a.n, gains);
  for (int j = 0; j < W; ++j) {
    normal[j] = (normal[j] - mean) * rstd;
    e[j] = dy[j] * gains[j];
  }
}

template <int W, class S>
__device__ __forceinline__ void add_columns(
    const NormSums<S>& sums, int64_t at, int64_t n, const S (&dy)[W], const S (&normal)[W]) {
  S gain_sum[W];
  S bias_sum[W];
  load_window(sums.gain_sum, at, n, gain_sum);
  load_window(sums.bias_sum, at, n, bias_sum);
  for (int j = 0; j < W; ++j) {
    gain_sum[j] = std::fma(dy[j], normal[j], gain_sum[j]);
    bias_sum[j] = bias_sum[j] + dy[j];
  }
  store_window(sums.gain_sum, at, n, gain_sum);
  store_window(sums.bias_sum, at, n, bias_sum);
}

// dx = rstd·(e − mean(e) − x̂·mean(e·x̂)), without mean(e) if not centred, onto d_sum.
template <bool centred, int W, class T, class S>
__device__ void norm_row(const NormBackward<T>& a, int64_t row, const NormSums<S>& sums) {
  const Windows<T, W> windows(a.x + row * a.n, a.n);
  const S rstd = read(a.rstd + row);
  S e_sum = 0;
  S ex_sum = 0;
  windows.each([&](int64_t at) {
    S dy[W];
    S normal[W];
    S e[W];
    load_gradient<centred>(a, row, at, dy, normal, e);
    add_columns(sums, at, a.n, dy, normal);
    for (int j = 0; j < W; ++j) {
      e_sum += e[j];
      ex_sum = std::fma(e[j], normal[j], ex_sum);
    }
    if (!sums.normals)
      return;
    store_window(sums.normals, at, a.n, normal);
    store_window(sums.products, at, a.n, e);
  });
  const S e_mean = centred ? block_sum(e_sum) / static_cast<S>(a.n) : S(0);
  const S ex_mean = block_sum(ex_sum) / static_cast<S>(a.n);
  windows.each([&](int64_t at) {
    S dy[W];
    S normal[W];
    S e[W];
    if (sums.normals) {
      load_window(sums.normals, at, a.n, normal);
      load_window(sums.products, at, a.n, e);
    } else {
      load_gradient<centred>(a, row, at, dy, normal, e);
    }
    for (int j = 0; j < W; ++j)
      e[j] = rstd * std::fma(-normal[j], ex_mean, e[j] - e_mean);
    if (a.d_sum) {
      load_window(a.d_sum + row * a.n, at, a.n, dy);
      for (int j = 0; j < W; ++j)
        e[j] = dy[j] + rounded<T>(e[j]);
    }
    store_window(a.dx + row * a.n, at, a.n, e);
  });
}

template <bool centred, int W, class T>
__global__ void __launch_bounds__(max_row_threads) norm_backward_kernel(NormBackward<T> a) {
  using S = Statistic<T>;
  SG_DYN_SHARED(S, shared);
  S* const own = a.partials + blockIdx.x * 2 * a.n;
  NormSums<S> sums{own, own + a.n, nullptr, nullptr};
  if (a.keeps)
    sums = {shared, shared + a.n, shared + 2 * a.n, shared + 3 * a.n};
  for (int64_t i = threadIdx.x; i < 2 * a.n; i += blockDim.x)
    write(sums.gain_sum + i, S(0));
  __syncthreads();
  for (int64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
    norm_row<centred, W>(a, row, sums);
    __syncthreads();  // the next row's windows may lie on other threads
  }
  if (!a.keeps)
    return;
  for (int64_t i = threadIdx.x; i < 2 * a.n; i += blockDim.x)
    write(own + i, read(shared + i));
}

template <bool centred, class T>
void norm_backward(NormBackward<T> a,
                   const View& x,
                   const Joined<T>& joined,
                   Workspace workspace,
                   StreamHandle stream) {
  using S = Statistic<T>;
  a.n = row_size(x);
  a.rows = row_count(x);
  a.partials = static_cast<S*>(workspace.data);
  if (a.n == 0)
    return;
  const int64_t blocks = std::min(a.rows, max_norm_blocks);
  const size_t shared = 4 * static_cast<size_t>(a.n) * sizeof(S);
  a.keeps = shared <= max_shared_bytes - 1024;
  const bool by_lots = wide_rows<T>(a.n, a.dy, a.d_sum, a.x, a.gain, a.dx);
  const auto kernel =
      by_lots ? norm_backward_kernel<centred, wide<T>, T> : norm_backward_kernel<centred, 1, T>;
  if (blocks > 0)
    launch(kernel,
           static_cast<unsigned>(blocks),
           row_threads(a.n, by_lots ? wide<T> : 1),
           a.keeps ? shared : 0,
           stream_of(stream),
           a);
  join<T>(a.partials, blocks, 2, a.n, joined, stream);
}

// ---- sums over rows

struct RowChunks {
  int64_t rows, each, count;
};
RowChunks row_chunks(int64_t rows) {
  const int64_t each = std::max(rows_of_block, divide_up(rows, max_row_chunks));
  return {rows, each, divide_up(rows, each)};
}

// Column sums of term(row's first element, window); grid (strips, chunks of rows).
template <int W, class S, class F>
__device__ __forceinline__ void add_rows(const RowChunks& chunks,
                                         int64_t n,
                                         S* partials,
                                         F&& term) {
  const int64_t at = (static_cast<int64_t>(blockIdx.x) * strip_threads + threadIdx.x) * W;
  if (at >= n)
    return;
  const int64_t first = blockIdx.y * chunks.each;
  const int64_t last = first + chunks.each < chunks.rows ? first + chunks.each : chunks.rows;
  S sum[W] = {};
  for (int64_t row = first; row < last; ++row) {
    S x[W];
    term(row * n + at, x);
    for (int j = 0; j < W; ++j)
      sum[j] += x[j];
  }
  store_as<W>(partials + blockIdx.y * n + at, sum);
}

template <int W, class T>
__global__ void __launch_bounds__(strip_threads)
    column_sum_kernel(const T* x, Statistic<T>* partials, RowChunks chunks, int64_t n) {
  add_rows<W>(chunks, n, partials, [&](int64_t at, Statistic<T>(&values)[W]) {
    load_as<W>(x + at, values);
  });
}

template <PointwiseOp derivative, int W, class T>
__global__ void __launch_bounds__(strip_threads) activation_kernel(
    const T* x, const T* dy, T* dx, Statistic<T>* partials, RowChunks chunks, int64_t n) {
  using S = Statistic<T>;
  constexpr element::Functor<derivative> slope;
  add_rows<W>(chunks, n, partials, [&](int64_t at, S(&values)[W]) {
    S gradients[W];
    load_as<W>(x + at, values);
    load_as<W>(dy + at, gradients);
    for (int j = 0; j < W; ++j)
      values[j] = rounded<T>(slope(values[j], gradients[j]));
    store_as<W>(dx + at, values);
  });
}

template <class T>
dim3 strips_of(const RowChunks& chunks, int64_t n, int W) {
  const int64_t strips = divide_up(n, static_cast<int64_t>(strip_threads) * W);
  return {static_cast<unsigned>(strips), static_cast<unsigned>(chunks.count)};
}

template <class T, PointwiseOp derivative>
void activation_backward_of(const View& x,
                            const View& dy,
                            const View& dx,
                            const View& d_bias,
                            Workspace workspace,
                            StreamHandle stream) {
  const int64_t n = row_size(x);
  const RowChunks chunks = row_chunks(row_count(x));
  const bool by_lots = wide_rows<T>(n, x.as<T>(), dy.as<T>(), dx.as<T>());
  const auto kernel =
      by_lots ? activation_kernel<derivative, wide<T>, T> : activation_kernel<derivative, 1, T>;
  auto* const partials = static_cast<Statistic<T>*>(workspace.data);
  if (x.numel() > 0)
    launch(kernel,
           strips_of<T>(chunks, n, by_lots ? wide<T> : 1),
           strip_threads,
           0,
           stream_of(stream),
           x.as<T>(),
           dy.as<T>(),
           dx.as<T>(),
           partials,
           chunks,
           n);
  if (n > 0)
    join<T>(partials, chunks.count, 1, n, {{d_bias.as<T>(), nullptr}}, stream);
}

template <class T, PointwiseOp derivative>
void activation_backward_by(const View& x,
                            const View& dy,
                            const View& dx,
                            const View& d_bias,
                            Workspace workspace,
                            StreamHandle stream) {
  if (d_bias.data)
    return activation_backward_of<T, derivative>(x, dy, dx, d_bias, workspace, stream);
  const View inputs[] = {x, dy};
  pointwise<T>(derivative, inputs, dx, 0, stream);
}

}  // namespace

template <class T>
void layernorm_backward(const View& dy,
                        const View& d_sum,
                        const View& x,
                        const View& gain,
                        const View& mean,
                        const View& rstd,
                        const View& dx,
                        const View& d_gain,
                        const View& d_bias,
                        Workspace workspace,
                        StreamHandle stream) {
  using S = Statistic<T>;
  const NormBackward<T> arguments{.dy = dy.as<T>(),
                                  .d_sum = d_sum.as<T>(),
                                  .x = x.as<T>(),
                                  .gain = gain.as<T>(),
                                  .mean = mean.as<S>(),
                                  .rstd = rstd.as<S>(),
                                  .dx = dx.as<T>()};
  norm_backward<true, T>(arguments, x, {{d_gain.as<T>(), d_bias.as<T>()}}, workspace, stream);
}

template <class T>
void rmsnorm_backward(const View& dy,
                      const View& d_sum,
                      const View& x,
                      const View& gain,
                      const View& rstd,
                      const View& dx,
                      const View& d_gain,
                      Workspace workspace,
                      StreamHandle stream) {
  using S = Statistic<T>;
  const NormBackward<T> arguments{.dy = dy.as<T>(),
                                  .d_sum = d_sum.as<T>(),
                                  .x = x.as<T>(),
                                  .gain = gain.as<T>(),
                                  .rstd = rstd.as<S>(),
                                  .dx = dx.as<T>()};
  norm_backward<false, T>(arguments, x, {{d_gain.as<T>(), nullptr}}, workspace, stream);
}

size_t layernorm_backward_workspace(const View& x, int) {
  const size_t item = x.dtype == DType::f64 ? sizeof(double) : sizeof(float);
  const int64_t blocks = std::min(row_count(x), max_norm_blocks);
  return static_cast<size_t>(blocks * 2 * row_size(x)) * item;
}

template <class T>
void activation_backward(PointwiseOp f,
                         const View& x,
                         const View& dy,
                         const View& dx,
                         const View& d_bias,
                         Workspace w,
                         StreamHandle s) {
  using enum PointwiseOp;
  switch (f) {
    case gelu: return activation_backward_by<T, gelu_backward>(x, dy, dx, d_bias, w, s);
    case gelu_tanh: return activation_backward_by<T, gelu_tanh_backward>(x, dy, dx, d_bias, w, s);
    case silu: return activation_backward_by<T, silu_backward>(x, dy, dx, d_bias, w, s);
    default: return activation_backward_by<T, relu_backward>(x, dy, dx, d_bias, w, s);
  }
}

template <class T>
void column_sum(const View& dy, const View& d_bias, Workspace workspace, StreamHandle stream) {
  const int64_t n = row_size(dy);
  const RowChunks chunks = row_chunks(row_count(dy));
  const bool by_lots = wide_rows<T>(n, dy.as<T>());
  auto* const partials = static_cast<Statistic<T>*>(workspace.data);
  if (dy.numel() > 0)
    launch(by_lots ? column_sum_kernel<wide<T>, T> : column_sum_kernel<1, T>,
           strips_of<T>(chunks, n, by_lots ? wide<T> : 1),
           strip_threads,
           0,
           stream_of(stream),
           dy.as<T>(),
           partials,
           chunks,
           n);
  if (n > 0)
    join<T>(partials, chunks.count, 1, n, {{d_bias.as<T>(), nullptr}}, stream);
}

size_t column_sum_workspace(const View& dy, int) {
  const size_t item = dy.dtype == DType::f64 ? sizeof(double) : sizeof(float);
  return static_cast<size_t>(row_chunks(row_count(dy)).count * row_size(dy)) * item;
}

SG_FOR_FLOATS(layernorm_backward)
SG_FOR_FLOATS(rmsnorm_backward)
SG_FOR_FLOATS(activation_backward)
SG_FOR_FLOATS(column_sum)

}  // namespace sg::kernels::cuda

// Softmax, layer and RMS norm, both ways. A block takes rows in steps of its grid and passes each
// through shared memory, so that a row is read from memory once; rows too long for that are read
// again. Sums have a fixed order that depends on n alone.
#include <cmath>

#include "kernels/cuda/rows.h"
#include "kernels/entries.h"

namespace sg::kernels::cuda {
namespace {

// Arrays of n elements of S that a block keeps in shared memory, if they fit.
template <class S>
size_t kept_bytes(int64_t n, int arrays) {
  const size_t bytes = static_cast<size_t>(arrays) * static_cast<size_t>(n) * sizeof(S);
  return bytes <= max_shared_bytes - 1024 ? bytes : 0;  // the rest is for block_sum
}

// ---- softmax

// exp(x − top) of a window; elements outside the row give 0.
template <int W, class S>
__device__ __forceinline__ void exponentials(S (&x)[W], S top) {
#pragma unroll
  for (int j = 0; j < W; ++j)
    x[j] = std::exp(x[j] - top);
}

// The row lies in `kept` once it has been read, or is read from memory again.
template <int W, class T>
__global__ void __launch_bounds__(max_row_threads)
    softmax_kernel(const T* x, T* y, int64_t rows, int64_t n, bool keeps) {
  using S = Statistic<T>;
  SG_DYN_SHARED(S, kept);
  const S lowest = -static_cast<S>(INFINITY);
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const T* const in = x + row * n;
    const Windows<T, W> windows(in, n);
    const auto take = [&](int64_t at, S(&values)[W]) {
      if (keeps)
        load_window(kept, at, n, values, lowest);
      else
        load_window(in, at, n, values, lowest);
    };
    S top = lowest;
    windows.each([&](int64_t at) {
      S values[W];
      load_window(in, at, n, values, lowest);
      for (int j = 0; j < W; ++j)
        top = Most<S>{}(top, values[j]);
      if (keeps)
        store_window(kept, at, n, values);
    });
    top = block_combine(top, lowest, Most<S>{});
    S total = 0;
    windows.each([&](int64_t at) {
      S values[W];
      take(at, values);
      exponentials(values, top);
      for (int j = 0; j < W; ++j)
        total += values[j];
      if (keeps)
        store_window(kept, at, n, values);
    });
    const S inverse = S(1) / block_sum(total);
    windows.each([&](int64_t at) {
      S values[W];
      take(at, values);
      if (!keeps)
        exponentials(values, top);
      for (int j = 0; j < W; ++j)
        values[j] *= inverse;
      store_window(y + row * n, at, n, values);
    });
    __syncthreads();  // the next row overwrites `kept`
  }
}

// dx = y·(dy − Σ y·dy)
template <int W, class T>
__global__ void __launch_bounds__(max_row_threads)
    softmax_backward_kernel(const T* y, const T* dy, T* dx, int64_t rows, int64_t n, bool keeps) {
  using S = Statistic<T>;
  SG_DYN_SHARED(S, kept);  // y, then dy
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const T* const from_y = y + row * n;
    const T* const from_dy = dy + row * n;
    const Windows<T, W> windows(from_y, n);
    S dot = 0;
    windows.each([&](int64_t at) {
      S weights[W];
      S gradients[W];
      load_window(from_y, at, n, weights);
      load_window(from_dy, at, n, gradients);
      for (int j = 0; j < W; ++j)
        dot = std::fma(weights[j], gradients[j], dot);
      if (!keeps)
        return;
      store_window(kept, at, n, weights);
      store_window(kept + n, at, n, gradients);
    });
    dot = block_sum(dot);
    windows.each([&](int64_t at) {
      S weights[W];
      S gradients[W];
      if (keeps) {
        load_window(kept, at, n, weights);
        load_window(kept + n, at, n, gradients);
      } else {
        load_window(from_y, at, n, weights);
        load_window(from_dy, at, n, gradients);
      }
      for (int j = 0; j < W; ++j)
        gradients[j] = weights[j] * (gradients[j] - dot);
      store_window(dx + row * n, at, n, gradients);
    });
    __syncthreads();  // the next row overwrites `kept`
  }
}

// ---- norms

template <class T>
struct Norm {
  using S = Statistic<T>;
  const T *x, *residual, *gain;
  const T* bias = nullptr;
  S eps;
  T *sum, *y;
  S* mean = nullptr;
  S* rstd;
  int64_t rows = 0;
  int64_t n = 0;
  bool keeps = false;
};

// Gain and bias (zeros where there is none) of a block's rows, in shared memory.
template <class T>
__device__ void stage_weights(const Norm<T>& a, Statistic<T>* gain, Statistic<T>* bias) {
  for (int64_t i = threadIdx.x; i < a.n; i += blockDim.x) {
    write(gain + i, static_cast<Statistic<T>>(read(a.gain + i)));
    write(bias + i, a.bias ? static_cast<Statistic<T>>(read(a.bias + i)) : Statistic<T>(0));
  }
  __syncthreads();
}

// x, or x + residual, which is stored and taken as it was rounded.
template <int W, class T>
__device__ __forceinline__ void load_sum(const Norm<T>& a,
                                         int64_t begin,
                                         int64_t at,
                                         Statistic<T> (&values)[W]) {
  load_window(a.x + begin, at, a.n, values);
  if (!a.residual)
    return;
  Statistic<T> more[W];
  load_window(a.residual + begin, at, a.n, more);
  for (int j = 0; j < W; ++j)
    values[j] = rounded<T>(values[j] + more[j]);
  store_window(a.sum + begin, at, a.n, values);
}

// Gain and bias of a window, from shared memory where they are staged.
template <int W, class T, class S>
__device__ __forceinline__ void load_weights(
    const Norm<T>& a, int64_t at, const S* gain, const S* bias, S (&gains)[W], S (&biases)[W]) {
  if (gain) {
    load_window(gain, at, a.n, gains);
    return load_window(bias, at, a.n, biases);
  }
  load_window(a.gain, at, a.n, gains);
  if (a.bias)
    load_window(a.bias, at, a.n, biases);
}

template <bool centred, class T, class S>
__device__ void write_statistics(const Norm<T>& a, int64_t row, S mean, S rstd) {
  if (threadIdx.x > 0)
    return;
  if (centred)
    write(a.mean + row, mean);
  write(a.rstd + row, rstd);
}

// One row, of which `kept` has room for a copy unless it is null.
template <bool centred, int W, class T>
__device__ __forceinline__ void normalise(const Norm<T>& a,
                                          int64_t row,
                                          Statistic<T>* kept,
                                          const Statistic<T>* gain,
                                          const Statistic<T>* bias) {
  using S = Statistic<T>;
  const int64_t begin = row * a.n;
  const Windows<T, W> windows(a.x + begin, a.n);
  const auto take = [&](int64_t at, S(&values)[W]) {
    if (kept)
      load_window(kept, at, a.n, values);
    else
      load_window((a.residual ? a.sum : a.x) + begin, at, a.n, values);
  };
  S total = 0;
  windows.each([&](int64_t at) {
    S values[W];
    load_sum(a, begin, at, values);
    for (int j = 0; j < W; ++j)
      total += values[j];
    if (kept)
      store_window(kept, at, a.n, values);
  });
  const S mean = centred ? block_sum(total) / static_cast<S>(a.n) : S(0);
  S squares = 0;
  windows.each([&](int64_t at) {
    S values[W];
    take(at, values);
    for (int j = 0; j < W; ++j) {
      const bool inside = at + j >= 0 && at + j < a.n;
      const S difference = inside ? values[j] - mean : S(0);
      squares = std::fma(difference, difference, squares);
    }
  });
  const S rstd = S(1) / std::sqrt(block_sum(squares) / static_cast<S>(a.n) + a.eps);
  write_statistics<centred>(a, row, mean, rstd);
  windows.each([&](int64_t at) {
    S values[W];
    S gains[W];
    S biases[W] = {};
    take(at, values);
    load_weights(a, at, gain, bias, gains, biases);
    for (int j = 0; j < W; ++j)
      values[j] = std::fma((values[j] - mean) * rstd, gains[j], biases[j]);
    store_window(a.y + begin, at, a.n, values);
  });
}

template <bool centred, int W, class T>
__global__ void __launch_bounds__(max_row_threads) norm_kernel(Norm<T> a) {
  using S = Statistic<T>;
  SG_DYN_SHARED(S, shared);
  S* const kept = a.keeps ? shared : nullptr;
  S* const gain = a.keeps ? shared + a.n : nullptr;
  S* const bias = a.keeps ? shared + 2 * a.n : nullptr;
  if (a.keeps)
    stage_weights(a, gain, bias);
  for (int64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
    normalise<centred, W>(a, row, kept, gain, bias);
    __syncthreads();  // the next row overwrites `kept`
  }
}

template <bool centred, class T>
void norm(Norm<T> a, const View& x, StreamHandle stream) {
  a.n = row_size(x);
  a.rows = a.n == 0 ? 0 : x.numel() / a.n;
  if (a.rows == 0)
    return;
  const bool by_lots = wide_rows<T>(a.n, a.x, a.residual, a.gain, a.bias, a.sum, a.y);
  const size_t shared = kept_bytes<Statistic<T>>(a.n, 3);
  a.keeps = shared > 0;
  const int W = by_lots ? wide<T> : 1;
  const auto kernel = by_lots ? norm_kernel<centred, wide<T>, T> : norm_kernel<centred, 1, T>;
  launch(kernel, row_blocks(a.rows), row_threads(a.n, W), shared, stream_of(stream), a);
}

}  // namespace

template <class T>
void softmax(const View& x, const View& y, StreamHandle stream) {
  const int64_t n = row_size(x);
  if (x.numel() == 0)
    return;
  const bool by_lots = wide_rows<T>(n, x.as<T>(), y.as<T>());
  const size_t shared = kept_bytes<Statistic<T>>(n, 1);
  launch(by_lots ? softmax_kernel<wide<T>, T> : softmax_kernel<1, T>,
         row_blocks(row_count(x)),
         row_threads(n, by_lots ? wide<T> : 1),
         shared,
         stream_of(stream),
         x.as<T>(),
         y.as<T>(),
         row_count(x),
         n,
         shared > 0);
}

template <class T>
void softmax_backward(const View& y, const View& dy, const View& dx, StreamHandle stream) {
  const int64_t n = row_size(y);
  if (y.numel() == 0)
    return;
  const bool by_lots = wide_rows<T>(n, y.as<T>(), dy.as<T>(), dx.as<T>());
  const size_t shared = kept_bytes<Statistic<T>>(n, 2);
  launch(by_lots ? softmax_backward_kernel<wide<T>, T> : softmax_backward_kernel<1, T>,
         row_blocks(row_count(y)),
         row_threads(n, by_lots ? wide<T> : 1),
         shared,
         stream_of(stream),
         y.as<T>(),
         dy.as<T>(),
         dx.as<T>(),
         row_count(y),
         n,
         shared > 0);
}

template <class T>
void layernorm(const View& x,
               const View& residual,
               const View& gain,
               const View& bias,
               float eps,
               const View& sum,
               const View& y,
               const View& mean,
               const View& rstd,
               StreamHandle stream) {
  using S = Statistic<T>;
  const Norm<T> arguments{.x = x.as<T>(),
                          .residual = residual.as<T>(),
                          .gain = gain.as<T>(),
                          .bias = bias.as<T>(),
                          .eps = static_cast<S>(eps),
                          .sum = sum.as<T>(),
                          .y = y.as<T>(),
                          .mean = mean.as<S>(),
                          .rstd = rstd.as<S>()};
  norm<true>(arguments, x, stream);
}

template <class T>
void rmsnorm(const View& x,
             const View& residual,
             const View& gain,
             float eps,
             const View& sum,
             const View& y,
             const View& rstd,
             StreamHandle stream) {
  using S = Statistic<T>;
  const Norm<T> arguments{.x = x.as<T>(),
                          .residual = residual.as<T>(),
                          .gain = gain.as<T>(),
                          .eps = static_cast<S>(eps),
                          .sum = sum.as<T>(),
                          .y = y.as<T>(),
                          .rstd = rstd.as<S>()};
  norm<false>(arguments, x, stream);
}

SG_FOR_FLOATS(softmax)
SG_FOR_FLOATS(softmax_backward)
SG_FOR_FLOATS(layernorm)
SG_FOR_FLOATS(rmsnorm)

}  // namespace sg::kernels::cuda

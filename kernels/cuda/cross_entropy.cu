// Cross-entropy: a block has a row. One pass finds the maximum and the sum of exponentials
// together, a second one, where a gradient is wanted, writes it.
#include <cmath>

#include "kernels/cuda/loss.h"
#include "kernels/cuda/rows.h"
#include "kernels/entries.h"

namespace sg::kernels::cuda {
namespace {

template <class T, class L>
struct Rows {
  const L* logits;
  int64_t count, n;
  const void* targets;
  bool wide_targets;  // i64
  Statistic<T>* losses;
  T* gradient;
  Statistic<T> scale;

  __device__ int64_t target(int64_t row) const {
    return wide_targets ? read(static_cast<const int64_t*>(targets) + row)
                        : int64_t{read(static_cast<const int32_t*>(targets) + row)};
  }
};

// A running maximum, and the sum of exponentials below it.
template <class S>
struct Softmax {
  S top = -static_cast<S>(INFINITY);
  S sum = 0;

  template <int W>
  __device__ void add(const S (&x)[W]) {
    S most = top;
    for (int j = 0; j < W; ++j)
      most = Most<S>{}(most, x[j]);
    if (most == -static_cast<S>(INFINITY))
      return;
    sum *= std::exp(top - most);
    for (int j = 0; j < W; ++j)
      sum += std::exp(x[j] - most);
    top = most;
  }
};

template <int W, class T, class L>
__device__ void write_gradient(
    const Rows<T, L>& rows, int64_t row, int64_t target, Statistic<T> top, Statistic<T> factor) {
  using S = Statistic<T>;
  const L* const in = rows.logits + row * rows.n;
  const Windows<L, W> windows(in, rows.n);
  windows.each([&](int64_t at) {
    S x[W];
    load_window(in, at, rows.n, x);
    for (int j = 0; j < W; ++j) {
      x[j] = target < 0 ? S(0) : std::exp(x[j] - top) * factor;
      if (at + j == target)
        x[j] = x[j] - rows.scale;
    }
    store_window(rows.gradient + row * rows.n, at, rows.n, x);
  });
}

template <int W, class T, class L>
__global__ void __launch_bounds__(max_row_threads) loss_kernel(Rows<T, L> rows) {
  using S = Statistic<T>;
  const S lowest = -static_cast<S>(INFINITY);
  for (int64_t row = blockIdx.x; row < rows.count; row += gridDim.x) {
    const L* const in = rows.logits + row * rows.n;
    const int64_t target = rows.target(row);
    const S logit = target < 0 ? S(0) : static_cast<S>(read(in + target));
    Softmax<S> own;
    const Windows<L, W> windows(in, rows.n);
    windows.each([&](int64_t at) {
      S x[W];
      load_window(in, at, rows.n, x, lowest);
      own.add(x);
    });
    const S top = block_combine(own.top, lowest, Most<S>{});
    const S sum = block_sum(own.sum == 0 ? S(0) : own.sum * std::exp(own.top - top));
    if (threadIdx.x == 0)
      write(rows.losses + row, target < 0 ? S(0) : std::log(sum) + top - logit);
    if (rows.gradient)
      write_gradient<W>(rows, row, target, top, rows.scale / sum);
  }
}

}  // namespace

template <class T, class L>
void row_losses(const L* logits,
                int64_t count,
                int64_t n,
                const View& targets,
                int64_t first,
                Statistic<T>* losses,
                T* gradient,
                float scale,
                StreamHandle stream) {
  if (count == 0)
    return;
  const int64_t skipped = first * static_cast<int64_t>(size_of(targets.dtype));
  const Rows<T, L> rows{logits,
                        count,
                        n,
                        targets.as<char>() + skipped,
                        targets.dtype == DType::i64,
                        losses,
                        gradient,
                        static_cast<Statistic<T>>(scale)};
  const bool by_lots = wide_rows<T>(n, logits, gradient);
  launch(by_lots ? loss_kernel<wide<T>, T, L> : loss_kernel<1, T, L>,
         static_cast<unsigned>(std::min<int64_t>(count, 4096)),
         row_threads(n, by_lots ? wide<T> : 1),
         0,
         stream_of(stream),
         rows);
}

template <class T>
void cross_entropy(const View& logits,
                   const View& targets,
                   const View& losses,
                   const View& d_logits,
                   float scale,
                   StreamHandle stream) {
  row_losses<T, T>(logits.as<T>(),
                   logits.shape[0],
                   logits.shape[1],
                   targets,
                   0,
                   losses.as<Statistic<T>>(),
                   d_logits.as<T>(),
                   scale,
                   stream);
}

SG_FOR_FLOATS(cross_entropy)
template decltype(row_losses<f16, float>) row_losses<f16, float>;
template decltype(row_losses<bf16, float>) row_losses<bf16, float>;

}  // namespace sg::kernels::cuda

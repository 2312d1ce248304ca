// LayerNorm: one block per row, the row read three times (it stays in the cache), sums in a fixed
// order.
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.h"

namespace sg::kernels::cuda {
namespace {

constexpr int warp_lanes = 32;
constexpr int max_row_threads = 512;

template <class S>
__device__ S warp_sum(S value) {
  for (int lane = warp_lanes / 2; lane > 0; lane /= 2)
    value += __shfl_xor_sync(0xffffffffu, value, lane);
  return value;
}

// Every thread of the block (whole warps) gets the sum.
template <class S>
__device__ S block_sum(S value) {
  SG_SHARED(S, partial, [warp_lanes]);
  const int lane = threadIdx.x % warp_lanes, warp = threadIdx.x / warp_lanes,
            warps = blockDim.x / warp_lanes;
  value = warp_sum(value);
  if (lane == 0)
    partial[warp] = value;
  __syncthreads();
  value = warp_sum(lane < warps ? partial[lane] : S(0));
  __syncthreads();  // the next call overwrites partial
  return value;
}

// x, residual, sum, y (rows, n); gain, bias (n); mean, rstd (rows). S is the type of sums and
// statistics.
template <class T, class S>
__global__ void __launch_bounds__(max_row_threads) layernorm_kernel(const T* x,
                                                                    const T* residual,
                                                                    const T* gain,
                                                                    const T* bias,
                                                                    S eps,
                                                                    T* sum,
                                                                    T* y,
                                                                    S* mean,
                                                                    S* rstd,
                                                                    int64_t n) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * n;
  const T* source = residual ? sum : x;

  S total = 0;
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
    S value = S(x[row + i]);
    if (residual) {
      const T stored = T(value + S(residual[row + i]));
      sum[row + i] = stored;
      value = S(stored);
    }
    total += value;
  }
  const S average = block_sum(total) / S(n);

  S squares = 0;
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
    const S difference = S(source[row + i]) - average;
    squares = std::fma(difference, difference, squares);
  }
  const S inverse = S(1) / std::sqrt(block_sum(squares) / S(n) + eps);
  if (threadIdx.x == 0) {
    mean[blockIdx.x] = average;
    rstd[blockIdx.x] = inverse;
  }

  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
    const S normal = (S(source[row + i]) - average) * inverse;
    y[row + i] = T(std::fma(normal, S(gain[i]), bias ? S(bias[i]) : S(0)));
  }
}

}  // namespace

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
  using S = std::conditional_t<std::is_same_v<T, double>, double, float>;
  const int64_t n = x.size(-1), rows = n == 0 ? 0 : x.numel() / n;
  if (rows == 0)
    return;
  // About four elements a thread, in whole warps.
  const int64_t warps =
      std::min<int64_t>((n + 4 * warp_lanes - 1) / (4 * warp_lanes), max_row_threads / warp_lanes);
  launch(layernorm_kernel<T, S>,
         static_cast<unsigned>(rows),
         static_cast<unsigned>(warps * warp_lanes),
         0,
         stream_of(stream),
         x.as<T>(),
         residual.as<T>(),
         gain.as<T>(),
         bias.as<T>(),
         S(eps),
         sum.as<T>(),
         y.as<T>(),
         mean.as<S>(),
         rstd.as<S>(),
         n);
}

template decltype(layernorm<float>) layernorm<float>;
template decltype(layernorm<double>) layernorm<double>;
template decltype(layernorm<f16>) layernorm<f16>;
template decltype(layernorm<bf16>) layernorm<bf16>;

}  // namespace sg::kernels::cuda

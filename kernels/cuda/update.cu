// Optimizer passes and the sums around them, with the bits of kernels/cpu/update.cpp: an element's
// result depends on its own inputs alone, and sums of squares add up in that file's order. Each
// pass reads and writes every array once, in accesses of 16 bytes where all arrays begin at one.
#include <array>

#include "kernels/cuda/access.h"
#include "kernels/cuda/launch.h"
#include "kernels/entries.h"
#include "kernels/update.h"

namespace sg::kernels::cuda {
namespace {

constexpr int threads = 256;
constexpr int lot = 4;  // elements of f32 in 16 bytes

// The arrays of an optimizer. `rounded` receives 16-bit parameters, `moments` are one or two.
template <class G, class P, int M>
struct Arrays {
  float* master;
  const G* gradient;
  float* moments[M > 0 ? M : 1];
  P* rounded;
  int64_t count;
};

// A first pass over `lots` of N elements, then the rest one by one.
template <int N, class Update, class G, class P, int M>
__device__ __forceinline__ void update_lot(const Update& update,
                                           const Arrays<G, P, M>& a,
                                           int64_t i) {
  float p[N];
  float g[N];
  float m[2][N];
  load_as<N>(a.master + i, p);
  load_as<N>(a.gradient + i, g);
#pragma unroll
  for (int k = 0; k < M; ++k)
    load_as<N>(a.moments[k] + i, m[k]);
#pragma unroll
  for (int j = 0; j < N; ++j) {
    if constexpr (M == 2)
      update(p[j], g[j], m[0][j], m[1][j]);
    else if constexpr (M == 1)
      update(p[j], g[j], m[0][j]);
    else
      update(p[j], g[j]);
  }
#pragma unroll
  for (int k = 0; k < M; ++k)
    store_as<N>(a.moments[k] + i, m[k]);
  store_as<N>(a.master + i, p);
  if constexpr (!std::is_same_v<P, float>)
    store_as<N>(a.rounded + i, p);
}

template <bool by_lots, class Update, class G, class P, int M>
__global__ void __launch_bounds__(threads) update_kernel(Update update, Arrays<G, P, M> arrays) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * threads;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * threads + threadIdx.x;
  const int64_t lots = by_lots ? arrays.count / lot : 0;
  for (int64_t i = first; i < lots; i += step)
    update_lot<lot>(update, arrays, i * lot);
  for (int64_t i = lots * lot + first; i < arrays.count; i += step)
    update_lot<1>(update, arrays, i);
}

template <class G, class P, int M, class Update>
void run_update(const Update& update,
                const View& master,
                const View& gradient,
                const std::array<const View*, M>& moments,
                const View& parameter,
                StreamHandle stream) {
  Arrays<G, P, M> arrays{
      master.as<float>(), gradient.as<G>(), {}, parameter.as<P>(), master.numel()};
  bool by_lots = aligned(arrays.master, arrays.gradient, arrays.rounded);
  for (int k = 0; k < M; ++k) {
    arrays.moments[k] = moments[static_cast<size_t>(k)]->template as<float>();
    by_lots = by_lots && aligned(arrays.moments[k]);
  }
  if (arrays.count == 0)
    return;
  const auto kernel =
      by_lots ? update_kernel<true, Update, G, P, M> : update_kernel<false, Update, G, P, M>;
  const unsigned blocks = blocks_for(arrays.count, by_lots ? threads * lot : threads);
  launch(kernel, blocks, threads, 0, stream_of(stream), update, arrays);
}

// By the type of 16-bit parameters, float where there are none.
template <class G, int M, class Update>
void run_by_parameter(const Update& update,
                      const View& master,
                      const View& gradient,
                      const std::array<const View*, M>& moments,
                      const View& parameter,
                      StreamHandle stream) {
  if (!parameter.data)
    run_update<G, float, M>(update, master, gradient, moments, parameter, stream);
  else if (parameter.dtype == DType::bf16)
    run_update<G, bf16, M>(update, master, gradient, moments, parameter, stream);
  else
    run_update<G, f16, M>(update, master, gradient, moments, parameter, stream);
}

// ---- sums

template <int N, class T, class A>
__device__ __forceinline__ void accumulate_lot(const T* x, A* sums) {
  Compute<T> terms[N];
  Compute<T> totals[N];
  load_as<N>(x, terms);
  load_as<N>(sums, totals);
#pragma unroll
  for (int j = 0; j < N; ++j)
    totals[j] = totals[j] + terms[j];
  store_as<N>(sums, totals);
}

template <bool by_lots, class T, class A>
__global__ void __launch_bounds__(threads) accumulate_kernel(const T* x, A* sums, int64_t count) {
  constexpr int N = 16 / static_cast<int>(sizeof(A));
  const int64_t step = static_cast<int64_t>(gridDim.x) * threads;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * threads + threadIdx.x;
  const int64_t lots = by_lots ? count / N : 0;
  for (int64_t i = first; i < lots; i += step)
    accumulate_lot<N>(x + i * N, sums + i * N);
  for (int64_t i = lots * N + first; i < count; i += step)
    accumulate_lot<1>(x + i, sums + i);
}

template <class T, class A>
void run_accumulate(const View& x, const View& acc, StreamHandle stream) {
  if (x.numel() == 0)
    return;
  const bool by_lots = aligned(x.as<T>(), acc.as<A>());
  const auto kernel = by_lots ? accumulate_kernel<true, T, A> : accumulate_kernel<false, T, A>;
  const unsigned blocks = blocks_for(x.numel(), by_lots ? threads * lot : threads);
  launch(kernel, blocks, threads, 0, stream_of(stream), x.as<T>(), acc.as<A>(), x.numel());
}

// Eight threads add up a chunk: thread t the elements j with j mod 8 = t, in order. Each quarter of
// the chunks passes through shared memory, so that it is read in whole sectors.
constexpr int chunk_lanes = 8;
constexpr int chunk_threads = 128;
constexpr int chunks_of_block = chunk_threads / chunk_lanes;
constexpr int quarter = static_cast<int>(norm_chunk) / 4;
constexpr int padded_quarter = quarter + chunk_lanes;  // the chunks of a warp lie in other banks

// Chunk c of the block's: elements of its quarter that begins at `from`, zeros behind the end.
template <class T>
__device__ void stage_quarter(const T* x, int64_t count, int64_t from, bool by_lots, float* to) {
  constexpr int N = wide<T>;
  constexpr int lots = quarter / N;
  for (int i = threadIdx.x; i < chunks_of_block * lots; i += chunk_threads) {
    const int chunk = i / lots;
    const int offset = i % lots * N;
    const int64_t at = from + chunk * norm_chunk + offset;
    float values[N];
    if (by_lots && at + N <= count) {
      load_as<N>(x + at, values);
    } else {
      for (int j = 0; j < N; ++j)
        values[j] = at + j < count ? static_cast<float>(read(x + at + j)) : 0.0f;
    }
    store_as<N>(to + chunk * padded_quarter + offset, values);
  }
}

template <class T>
__global__ void __launch_bounds__(chunk_threads)
    sum_squares_kernel(const T* x, double* partial, int64_t count, bool by_lots) {
  SG_SHARED(float, staged, [chunks_of_block * padded_quarter]);
  const int64_t first = static_cast<int64_t>(blockIdx.x) * chunks_of_block;
  const int chunk = threadIdx.x / chunk_lanes;
  const int lane = threadIdx.x % chunk_lanes;
  double sum = 0;
  for (int part = 0; part < 4; ++part) {
    __syncthreads();
    stage_quarter(x, count, first * norm_chunk + part * quarter, by_lots, staged);
    __syncthreads();
    for (int j = lane; j < quarter; j += chunk_lanes) {
      const double value = read(staged + chunk * padded_quarter + j);
      sum = std::fma(value, value, sum);
    }
  }
  for (int distance = 1; distance < chunk_lanes; distance *= 2)
    sum = sum + __shfl_xor_sync(0xffffffffu, sum, distance);
  const int64_t chunks = (count + norm_chunk - 1) / norm_chunk;
  if (lane == 0 && first + chunk < chunks)
    write(partial + first + chunk, sum);
}

}  // namespace

template <class G>
void adam(const View& master,
          const View& gradient,
          const View& moment1,
          const View& moment2,
          const View& parameter,
          const AdamOptions& options,
          StreamHandle stream) {
  const element::Adam update(options);
  run_by_parameter<G, 2>(update, master, gradient, {&moment1, &moment2}, parameter, stream);
}

template <class G>
void sgd(const View& master,
         const View& gradient,
         const View& momentum,
         const View& parameter,
         const SgdOptions& options,
         StreamHandle stream) {
  const element::Sgd update(options);
  if (momentum.data)
    run_by_parameter<G, 1>(update, master, gradient, {&momentum}, parameter, stream);
  else
    run_by_parameter<G, 0>(update, master, gradient, {}, parameter, stream);
}

template <class G>
void lion(const View& master,
          const View& gradient,
          const View& momentum,
          const View& parameter,
          const LionOptions& options,
          StreamHandle stream) {
  const element::Lion update(options);
  run_by_parameter<G, 1>(update, master, gradient, {&momentum}, parameter, stream);
}

template <class T>
void accumulate(const View& x, const View& acc, StreamHandle stream) {
  if (acc.dtype == dtype_of<T>)
    run_accumulate<T, T>(x, acc, stream);
  else if constexpr (!std::is_same_v<T, double>)
    run_accumulate<T, float>(x, acc, stream);
}

template <class T>
void sum_squares(const View& x, const View& partial, StreamHandle stream) {
  const int64_t count = x.numel();
  const int64_t chunks = (count + norm_chunk - 1) / norm_chunk;
  if (chunks == 0)
    return;
  const int64_t blocks = (chunks + chunks_of_block - 1) / chunks_of_block;
  launch(sum_squares_kernel<T>,
         static_cast<unsigned>(blocks),
         chunk_threads,
         0,
         stream_of(stream),
         x.as<T>(),
         partial.as<double>(),
         count,
         aligned(x.as<T>()));
}

SG_FOR_GRADIENTS(adam)
SG_FOR_GRADIENTS(sgd)
SG_FOR_GRADIENTS(lion)
SG_FOR_GRADIENTS(sum_squares)
SG_FOR_FLOATS(accumulate)

}  // namespace sg::kernels::cuda

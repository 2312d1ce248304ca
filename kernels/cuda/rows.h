// Rows of a matrix on a block of threads: windows of a row, sums over a block, and the launch that
// all row kernels share.
#pragma once
#include <algorithm>

#include "kernels/cuda/access.h"
#include "kernels/cuda/launch.h"
#include "kernels/view.h"

namespace sg::kernels::cuda {

inline constexpr int warp_lanes = 32;
inline constexpr int sector_bytes = 32;  // what memory hands out at once
inline constexpr int max_row_threads = 256;
inline constexpr size_t max_shared_bytes = size_t(48) << 10;
// Blocks of a kernel that goes through rows in steps of its grid: two on each processor of the
// largest GPUs.
inline constexpr int64_t max_row_blocks = 264;

inline int64_t divide_up(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}
// A view (…, n) as rows of n.
inline int64_t row_size(const View& x) {
  return x.rank == 0 ? 1 : x.shape[x.rank - 1];
}
inline int64_t row_count(const View& x) {
  int64_t rows = 1;
  for (int d = 0; d + 1 < x.rank; ++d)
    rows *= x.shape[d];
  return rows;
}

template <class S>
struct Add {
  __device__ S operator()(S a, S b) const { return a + b; }
};
template <class S>
struct Most {
  __device__ S operator()(S a, S b) const { return b > a ? b : a; }
};

template <class S>
struct Least {
  __device__ S operator()(S a, S b) const { return b < a ? b : a; }
};

template <class S, class Combine>
__device__ S warp_combine(S value, Combine combine) {
  for (int lane = warp_lanes / 2; lane > 0; lane /= 2)
    value = combine(value, __shfl_xor_sync(0xffffffffu, value, lane));
  return value;
}

// Every thread of the block (whole warps) gets what all values combine to; `start` changes nothing.
template <class S, class Combine>
__device__ S block_combine(S value, S start, Combine combine) {
  SG_SHARED(S, partial, [warp_lanes]);
  const int lane = threadIdx.x % warp_lanes;
  const int warp = threadIdx.x / warp_lanes;
  const int warps = blockDim.x / warp_lanes;
  value = warp_combine(value, combine);
  if (lane == 0)
    write(&partial[warp], value);
  __syncthreads();
  value = warp_combine(lane < warps ? read(&partial[lane]) : start, combine);
  __syncthreads();  // the next call overwrites partial
  return value;
}
template <class S>
__device__ S block_sum(S value) {
  return block_combine(value, S(0), Add<S>{});
}

// A row of n elements in windows of W that threads take in turn. The first window may begin before
// the row: windows lie such that each warp begins at a sector, wherever the row does.
template <class T, int W>
struct Windows {
  const T* row;
  int64_t n;
  int shift;

  __device__ Windows(const T* row_of, int64_t n_of) : row(row_of), n(n_of) {
    shift = static_cast<int>(reinterpret_cast<uintptr_t>(row) % sector_bytes / sizeof(T));
  }
  // body(first element) for each window of this thread.
  template <class F>
  __device__ __forceinline__ void each(F&& body) const {
    const int64_t step = static_cast<int64_t>(blockDim.x) * W;
    for (int64_t at = static_cast<int64_t>(threadIdx.x) * W - shift; at < n; at += step) {
      if (at > -W)
        body(at);
    }
  }
};

// Elements at … at + W − 1 of a row of n; those outside it are `outside`, or are left alone.
template <int W, class T, class S>
__device__ __forceinline__ void load_window(
    const T* row, int64_t at, int64_t n, S (&x)[W], S outside = S(0)) {
  if (at >= 0 && at + W <= n)
    return load_as<W>(row + at, x);
#pragma unroll
  for (int i = 0; i < W; ++i) {
    const bool inside = at + i >= 0 && at + i < n;
    x[i] = inside ? static_cast<S>(read(row + at + i)) : outside;
  }
}
template <int W, class T, class S>
__device__ __forceinline__ void store_window(T* row, int64_t at, int64_t n, const S (&x)[W]) {
  if (at >= 0 && at + W <= n)
    return store_as<W>(row + at, x);
#pragma unroll
  for (int i = 0; i < W; ++i) {
    const bool inside = at + i >= 0 && at + i < n;
    if (inside)
      write(row + at + i, static_cast<T>(x[i]));
  }
}

// The value that a store to T and a load would give back.
template <class T, class S>
__device__ __forceinline__ S rounded(S x) {
  return static_cast<S>(static_cast<T>(x));
}

// Threads that take a row of n elements in windows of W: whole warps, each thread about as many
// windows.
inline unsigned row_threads(int64_t n, int W) {
  const int64_t windows = std::max<int64_t>(divide_up(n, W), 1);
  const int64_t rounds = divide_up(windows, max_row_threads);
  return static_cast<unsigned>(divide_up(divide_up(windows, rounds), warp_lanes) * warp_lanes);
}
inline unsigned row_blocks(int64_t rows) {
  return static_cast<unsigned>(std::min(rows, max_row_blocks));
}

// Rows can be taken in the widest accesses: each begins at a multiple of 16 bytes.
template <class T, class... Pointers>
bool wide_rows(int64_t n, const Pointers*... pointers) {
  return n % wide<T> == 0 && aligned(pointers...);
}

}  // namespace sg::kernels::cuda

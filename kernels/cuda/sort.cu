#include <bit>

#include "kernels/cuda/rows.h"
#include "kernels/cuda/sort.h"

namespace sg::kernels::cuda {
namespace {

constexpr int digit_bits = 8;
constexpr int digits = 1 << digit_bits;
constexpr int threads = digits;  // so that a thread can own a digit
constexpr int warps = threads / warp_lanes;
constexpr int rounds = 4;  // a block takes as many runs of one id a thread
constexpr int64_t ids_of_block = threads * rounds;
constexpr int scan_threads = 1024;

struct Pairs {
  uint32_t *ids, *positions;
};
struct Buffers {
  Pairs a, b;
  uint32_t* counts;  // (digits, blocks)
};
int64_t blocks_of(int64_t n) {
  return divide_up(n, ids_of_block);
}
Buffers buffers_of(Workspace workspace, int64_t n) {
  auto* const words = static_cast<uint32_t*>(workspace.data);
  return {{words, words + n}, {words + 2 * n, words + 3 * n}, words + 4 * n};
}

template <class Id>
__global__ void __launch_bounds__(threads) begin_kernel(const Id* ids, int64_t n, Pairs to) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (i >= n)
    return;
  write(to.ids + i, static_cast<uint32_t>(read(ids + i)));
  write(to.positions + i, static_cast<uint32_t>(i));
}

__device__ uint32_t digit_of(uint32_t id, int shift) {
  return id >> shift & (digits - 1);
}

__global__ void __launch_bounds__(threads)
    count_kernel(const uint32_t* ids, int64_t n, int shift, uint32_t* counts) {
  SG_SHARED(uint32_t, found, [digits]);
  write(found + threadIdx.x, 0u);
  __syncthreads();
  const int64_t first = blockIdx.x * ids_of_block;
  for (int round = 0; round < rounds; ++round) {
    const int64_t i = first + round * threads + threadIdx.x;
    if (i < n)
      atomicAdd(found + digit_of(read(ids + i), shift), 1u);
  }
  __syncthreads();
  write(counts + static_cast<int64_t>(threadIdx.x) * gridDim.x + blockIdx.x,
        read(found + threadIdx.x));
}

// The sum of the values of lower threads, and of the whole block.
__device__ uint32_t block_scan(uint32_t value, uint32_t& total) {
  SG_SHARED(uint32_t, sums, [warp_lanes]);
  const int lane = threadIdx.x % warp_lanes;
  const int warp = threadIdx.x / warp_lanes;
  uint32_t up_to = value;
  for (int distance = 1; distance < warp_lanes; distance *= 2) {
    const uint32_t before = __shfl_up_sync(0xffffffffu, up_to, distance);
    up_to += lane >= distance ? before : 0;
  }
  if (lane == warp_lanes - 1)
    write(sums + warp, up_to);
  __syncthreads();
  uint32_t lower = 0;
  total = 0;
  for (int w = 0; w < static_cast<int>(blockDim.x) / warp_lanes; ++w) {
    const uint32_t sum = read(sums + w);
    lower += w < warp ? sum : 0;
    total += sum;
  }
  __syncthreads();  // the next call overwrites sums
  return lower + up_to - value;
}

// counts[i] becomes the sum of those before it. One block.
__global__ void __launch_bounds__(scan_threads) scan_kernel(uint32_t* counts, int64_t count) {
  uint32_t before = 0;
  for (int64_t first = 0; first < count; first += scan_threads) {
    const int64_t i = first + threadIdx.x;
    const uint32_t value = i < count ? read(counts + i) : 0;
    uint32_t total;
    const uint32_t lower = block_scan(value, total);
    if (i < count)
      write(counts + i, before + lower);
    before += total;
  }
}

// Lanes of the warp with the same digit as this one, among those that have one.
__device__ uint32_t same_digit(uint32_t digit, bool present) {
  uint32_t same = __ballot_sync(0xffffffffu, present);
  for (int bit = 0; bit < digit_bits; ++bit) {
    const bool set = digit >> bit & 1;
    const uint32_t lanes = __ballot_sync(0xffffffffu, set);
    same &= set ? lanes : ~lanes;
  }
  return same;
}

__global__ void __launch_bounds__(threads)
    move_kernel(Pairs from, Pairs to, int64_t n, int shift, const uint32_t* counts) {
  SG_SHARED(uint32_t, next, [digits]);             // where the next id of a digit goes
  SG_SHARED(uint32_t, of_warp, [warps * digits]);  // how many ids of a digit a warp has, then where
  const int lane = threadIdx.x % warp_lanes;
  const int warp = threadIdx.x / warp_lanes;
  const int64_t first = blockIdx.x * ids_of_block;
  write(next + threadIdx.x,
        read(counts + static_cast<int64_t>(threadIdx.x) * gridDim.x + blockIdx.x));
  for (int round = 0; round < rounds; ++round) {
    for (int w = 0; w < warps; ++w)
      write(of_warp + w * digits + threadIdx.x, 0u);
    __syncthreads();
    const int64_t i = first + round * threads + threadIdx.x;
    const bool present = i < n;
    const uint32_t id = present ? read(from.ids + i) : 0;
    const uint32_t digit = digit_of(id, shift);
    const uint32_t same = same_digit(digit, present);
    const auto before = static_cast<uint32_t>(__popc(same & ((1u << lane) - 1)));
    if (present && before == 0)
      write(of_warp + warp * digits + digit, static_cast<uint32_t>(__popc(same)));
    __syncthreads();
    uint32_t at = read(next + threadIdx.x);
    for (int w = 0; w < warps; ++w) {
      const uint32_t count = read(of_warp + w * digits + threadIdx.x);
      write(of_warp + w * digits + threadIdx.x, at);
      at += count;
    }
    write(next + threadIdx.x, at);
    __syncthreads();
    if (present) {
      const uint32_t place = read(of_warp + warp * digits + digit) + before;
      write(to.ids + place, id);
      write(to.positions + place, read(from.positions + i));
    }
    __syncthreads();  // the next round overwrites of_warp
  }
}

template <class Id>
void begin(const View& ids, int64_t n, Pairs to, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(divide_up(n, threads));
  launch(begin_kernel<Id>, blocks, threads, 0, stream, ids.as<Id>(), n, to);
}

}  // namespace

size_t sort_workspace(int64_t n) {
  return static_cast<size_t>(4 * n + digits * blocks_of(n)) * sizeof(uint32_t);
}

SortedIds sort_ids(const View& ids, int64_t limit, Workspace workspace, StreamHandle handle) {
  const int64_t n = ids.numel();
  const cudaStream_t stream = stream_of(handle);
  Buffers buffers = buffers_of(workspace, n);
  if (ids.dtype == DType::i64)
    begin<int64_t>(ids, n, buffers.a, stream);
  else
    begin<int32_t>(ids, n, buffers.a, stream);
  const auto blocks = static_cast<unsigned>(blocks_of(n));
  const int bits = static_cast<int>(std::bit_width(static_cast<uint64_t>(limit - 1)));
  for (int shift = 0; shift < bits; shift += digit_bits) {
    launch(count_kernel, blocks, threads, 0, stream, buffers.a.ids, n, shift, buffers.counts);
    launch(scan_kernel, 1, scan_threads, 0, stream, buffers.counts, blocks_of(n) * digits);
    launch(move_kernel, blocks, threads, 0, stream, buffers.a, buffers.b, n, shift, buffers.counts);
    std::swap(buffers.a, buffers.b);
  }
  return {buffers.a.ids, buffers.a.positions};
}

}  // namespace sg::kernels::cuda

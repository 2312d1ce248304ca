#include "kernels/cuda/launch.h"
#include "tests/cuda_sim/planted.h"

namespace simt {
namespace {

using sg::kernels::cuda::launch;

constexpr int block_threads = 64;

// data[i] = data[n − 1 − i] within each block, by way of shared memory.
__global__ void reverse_kernel(int* data, int64_t, Planted fault) {
  SG_SHARED(int, copy, [block_threads]);
  const int i = threadIdx.x, mirrored = block_threads - 1 - i;
  if (fault == Planted::skipped_barrier && i >= block_threads / 2)
    return;
  if (fault != Planted::unwritten_shared || i < block_threads / 2)
    copy[i] = data[i];
  if (fault == Planted::past_shared && mirrored == 0)
    copy[i + 1] = 0;
  if (fault == Planted::divergent_barrier && i < block_threads / 2)
    __syncthreads();
  else if (fault != Planted::missing_barrier)
    __syncthreads();
  data[i] = copy[mirrored];
}

// The same within a warp.
__global__ void reverse_warp_kernel(int* data, int64_t, Planted fault) {
  SG_SHARED(int, copy, [32]);
  copy[threadIdx.x] = data[threadIdx.x];
  if (fault != Planted::missing_warp_barrier)
    __syncwarp();
  data[threadIdx.x] = copy[31 - threadIdx.x];
}

// data[i] += its neighbour's, in the lower half of the warp.
__global__ void shuffle_kernel(int* data, int64_t, Planted fault) {
  if (threadIdx.x >= 16)
    return;
  const unsigned mask = fault == Planted::shuffle_bad_mask ? 0xffffffffu : 0x0000ffffu;
  const int other = fault == Planted::shuffle_outside ? threadIdx.x + 16 : threadIdx.x ^ 1;
  data[threadIdx.x] += __shfl_sync(mask, data[threadIdx.x], other);
}

__global__ void count_kernel(int* data, int64_t, Planted fault) {
  if (fault == Planted::missing_atomic)
    data[0] += 1;
  else
    atomicAdd(data, 1);
}

// Each block leaves its number + 1; the last to finish adds them up into data[n − 1]. data[n − 2]
// counts blocks.
__global__ void last_block_kernel(int* data, int64_t n, Planted fault) {
  if (threadIdx.x != 0)
    return;
  data[blockIdx.x] = static_cast<int>(blockIdx.x) + 1;
  if (fault != Planted::missing_fence)
    __threadfence();
  if (atomicAdd(data + n - 2, 1) != static_cast<int>(gridDim.x) - 1)
    return;
  int sum = 0;
  for (unsigned i = 0; i < gridDim.x; ++i)
    sum += data[i];
  data[n - 1] = sum;
}

__global__ void increment_kernel(int* data, int64_t n, Planted fault) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (fault == Planted::past_global || i < n)
    data[i] += 1;
}

}  // namespace

void run_planted(Planted fault, Planted like, int* data, int64_t n, cudaStream_t stream) {
  switch (like) {
    case Planted::divergent_barrier:
    case Planted::skipped_barrier:
    case Planted::missing_barrier:
    case Planted::past_shared:
    case Planted::unwritten_shared:
      return launch(reverse_kernel, 1, block_threads, 0, stream, data, n, fault);
    case Planted::missing_warp_barrier:
      return launch(reverse_warp_kernel, 1, 32, 0, stream, data, n, fault);
    case Planted::shuffle_bad_mask:
    case Planted::shuffle_outside: return launch(shuffle_kernel, 1, 32, 0, stream, data, n, fault);
    case Planted::missing_atomic:
      return launch(count_kernel, 4, block_threads, 0, stream, data, n, fault);
    case Planted::missing_fence: return launch(last_block_kernel, 4, 32, 0, stream, data, n, fault);
    case Planted::past_global:
    case Planted::unwritten_global:
    case Planted::none: {
      const auto blocks = static_cast<unsigned>((n + block_threads - 1) / block_threads);
      return launch(increment_kernel, blocks, block_threads, 0, stream, data, n, fault);
    }
  }
}

}  // namespace simt

// Kernels with one planted fault each, and their correct twins: if one of them went unnoticed, the
// software device would prove nothing.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

namespace simt {

enum class Planted {
  none,
  divergent_barrier,     // half of the block meets at another __syncthreads()
  skipped_barrier,       // half of the block returns before the barrier
  shuffle_bad_mask,      // half of a warp shuffles under the mask of all
  shuffle_outside,       // a lane reads one that its mask leaves out
  missing_barrier,       // shared memory is read without __syncthreads() after its writes
  missing_warp_barrier,  // the same within a warp
  missing_atomic,        // blocks count in one integer by +=
  missing_fence,         // the last block adds up what the others wrote without __threadfence()
  past_shared,           // the last thread writes one element past a shared array
  past_global,           // a kernel without a tail check
  unwritten_shared,      // half of a shared array is never written
  unwritten_global,      // reads memory that nothing has filled
};

// Runs the kernel for it on `n` elements, with `Planted::none` the correct twin of `like`.
void run_planted(Planted fault, Planted like, int* data, int64_t n, cudaStream_t stream = nullptr);

}  // namespace simt

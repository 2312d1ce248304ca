#include "kernels/cuda/launch.h"
#include "tests/cuda_sim/operations.h"

namespace simt {
namespace {

__global__ void operations_kernel(const int* in, int* out) {
  SG_DYN_SHARED(int, values);
  const int thread = threadIdx.x, threads = blockDim.x, lane = thread % 32;
  const int lanes = threads - (thread - lane) < 32 ? threads - (thread - lane)
                                                   : 32;  // the last warp may be short
  const unsigned all = 0xffffffffu;
  const int value = in[thread];
  values[thread] = value;
  out += 5 * thread;
  out[0] = __syncthreads_count(value > 0);
  out[4] = values[threads - 1 - thread];

  unsigned lower = __ballot_sync(all, value > 0) & ((1u << lane) - 1);
  for (out[1] = 0; lower; lower &= lower - 1)
    ++out[1];
  int up_to = value, from = value;
  for (int distance = 1; distance < 32; distance *= 2) {
    const int before = __shfl_up_sync(all, up_to, distance);
    if (lane >= distance)
      up_to += before;
    const int width_end = lane + distance < lanes ? distance : 0;
    const int after = __shfl_sync(all, from, lane + width_end);
    if (width_end)
      from += after;
  }
  out[2] = up_to;
  out[3] = from;
}

}  // namespace

void run_operations(const int* in, int* out, unsigned threads) {
  sg::kernels::cuda::launch(operations_kernel, 1, threads, threads * sizeof(int), nullptr, in, out);
}

}  // namespace simt

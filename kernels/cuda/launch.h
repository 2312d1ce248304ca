// The only way a kernel is launched and the only spelling of shared memory in this folder. Both are
// plain C++, so that the same sources also run on the software device of the tests, which brings
// its own SG_SHARED and cudaLaunchKernelEx.
#pragma once
#include <cuda_runtime.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include "kernels/device.h"

#ifndef SG_SHARED
// SG_SHARED(float, partial, [32]) is an array that the block shares; SG_DYN_SHARED(float, row) are
// launch()'s shared_bytes.
#define SG_SHARED(T, name, ...) __shared__ T name __VA_ARGS__
#define SG_DYN_SHARED(T, name)                                    \
  extern __shared__ __align__(128) unsigned char sg_dyn_shared[]; \
  T* name = reinterpret_cast<T*>(sg_dyn_shared)
#endif

namespace sg::kernels::cuda {

inline cudaStream_t stream_of(StreamHandle stream) {
  return static_cast<cudaStream_t>(stream.raw);
}

// Throws std::runtime_error "pointwise: out of memory (cudaErrorMemoryAllocation)".
inline void check(cudaError_t error, const char* operation) {
  if (error == cudaSuccess)
    return;
  throw std::runtime_error(std::string(operation) + ": " + cudaGetErrorString(error) + " (" +
                           cudaGetErrorName(error) + ")");
}

// More dynamic shared memory than a kernel may have unasked; more is asked for here.
inline constexpr size_t unasked_shared_bytes = size_t(48) << 10;

// Runs kernel(arguments…) on the stream, or throws as check() does.
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...),
            dim3 grid,
            dim3 block,
            size_t shared_bytes,
            cudaStream_t stream,
            Arguments&&... arguments) {
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  if (shared_bytes > unasked_shared_bytes)
    check(cudaFuncSetAttribute(
              kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes)),
          "shared memory of a kernel");
  check(cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...),
        "kernel launch");
}

// Blocks of a grid-stride loop over count elements: every thread one element, up to a few full
// waves of the largest GPUs.
inline unsigned blocks_for(int64_t count, int threads) {
  return static_cast<unsigned>(std::min<int64_t>((count + threads - 1) / threads, 4096));
}

}  // namespace sg::kernels::cuda

#include "kernels/cuda/device.h"
#include "kernels/cuda/launch.h"

namespace sg {

int cuda_device_count() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaErrorInsufficientDriver || error == cudaErrorNoDevice) {
    cudaGetLastError();  // an answer, not a failure: nothing may stay behind for the next check
    return 0;
  }
  kernels::cuda::check(error, "cuda_device_count");
  return count;
}

}  // namespace sg

// The same tests on a real GPU, where there is one: what they ask of the software device, said of
// CUDA's own runtime.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include "kernels/cuda/device.h"
#include "tests/cuda_sim/software_device.h"

namespace simt {

void reset(const Options&) {
  if (sg::cuda_device_count() == 0)
    GTEST_SKIP() << "no GPU";  // the tests' memory is freed with the process
}

std::vector<std::string> take_faults() {
  if (sg::cuda_device_count() == 0)
    return {};
  const cudaError_t error = cudaDeviceSynchronize();
  return error == cudaSuccess ? std::vector<std::string>{}
                              : std::vector<std::string>{cudaGetErrorString(error)};
}

bool checks_accesses() {
  return false;
}

}  // namespace simt

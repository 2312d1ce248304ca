// Stands in for this folder's .cu files in a build without the CUDA toolkit.
#include "kernels/cuda/device.h"
#include "kernels/table.h"

namespace sg {

int cuda_device_count() {
  return 0;
}
const KernelTable* cuda_kernels() {
  return nullptr;
}

}  // namespace sg

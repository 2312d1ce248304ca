// A build whose core has no CUDA memory and streams, whether or not CUDA kernels were compiled.
#include "core/backend.h"
#include "core/device.h"

namespace sg {

std::unique_ptr<Backend> make_cuda_backend(Device device) {
  fail(ErrorKind::usage,
       "{}: this build has no CUDA memory and no CUDA streams; use cpu:{}",
       device,
       device.index);
}

}  // namespace sg

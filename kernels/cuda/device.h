// The CUDA devices of this machine, for code that is compiled with or without the toolkit.
#pragma once

namespace sg {

// 0 without a GPU, without a driver (or one too old for the toolkit), and in a build without CUDA.
// Throws std::runtime_error for any other failure of the runtime.
int cuda_device_count();

}  // namespace sg

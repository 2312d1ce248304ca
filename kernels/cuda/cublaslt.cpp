#include "kernels/cuda/cublaslt.h"

#include <dlfcn.h>

#include <stdexcept>
#include <string>

namespace sg::kernels::cuda {
namespace {

// The library this was built against where it still lies there, else the one of the same major
// version that the loader finds.
void* open_library() {
  const std::string soname = "libcublasLt.so." + std::to_string(CUBLAS_VER_MAJOR);
  void* library = dlopen(SG_CUBLASLT_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  if (!library)
    library = dlopen(soname.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library)
    throw std::runtime_error("matmul: " + soname +
                             " of the CUDA toolkit cannot be loaded: " + dlerror());
  return library;
}

template <class F>
F* symbol(void* library, const char* name) {
  void* address = dlsym(library, name);
  if (!address)
    throw std::runtime_error(std::string("matmul: this libcublasLt has no ") + name);
  return reinterpret_cast<F*>(address);
}

CublasLt load() {
  void* library = open_library();
#define SG_SYMBOL(name) .name = symbol<decltype(::name)>(library, #name),
  return {SG_CUBLASLT_FUNCTIONS(SG_SYMBOL)};
#undef SG_SYMBOL
}

}  // namespace

const CublasLt& cublaslt() {
  static const CublasLt functions = load();
  return functions;
}

}  // namespace sg::kernels::cuda

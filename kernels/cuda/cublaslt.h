// cuBLASLt, loaded at the first product: mapping the library costs 150 MB and 60 ms, which a
// process that never multiplies on a GPU should not pay. The signatures are those of NVIDIA's
// header.
#pragma once
#include <cublasLt.h>

namespace sg::kernels::cuda {

#define SG_CUBLASLT_FUNCTIONS(X)          \
  X(cublasLtCreate)                       \
  X(cublasLtGetStatusString)              \
  X(cublasLtMatrixLayoutCreate)           \
  X(cublasLtMatrixLayoutDestroy)          \
  X(cublasLtMatrixLayoutSetAttribute)     \
  X(cublasLtMatmulDescCreate)             \
  X(cublasLtMatmulDescDestroy)            \
  X(cublasLtMatmulDescSetAttribute)       \
  X(cublasLtMatmulPreferenceCreate)       \
  X(cublasLtMatmulPreferenceDestroy)      \
  X(cublasLtMatmulPreferenceSetAttribute) \
  X(cublasLtMatmulAlgoGetHeuristic)       \
  X(cublasLtMatmul)

struct CublasLt {
#define SG_MEMBER(name) decltype(&::name) name;
  SG_CUBLASLT_FUNCTIONS(SG_MEMBER)
#undef SG_MEMBER
};

// Throws std::runtime_error, naming the library and the loader's reason, where it cannot be loaded.
const CublasLt& cublaslt();

}  // namespace sg::kernels::cuda

#include "kernels/cpu/runtime/gemm.h"
#include "kernels/table.h"

#ifdef SG_ONEDNN
#include <dnnl.hpp>
#else
#include <Eigen/Core>
#endif

#define SG_TEXT_OF(x) #x
#define SG_TEXT(x) SG_TEXT_OF(x)
#ifdef SG_ONEDNN
#define SG_LIBRARY                                                                   \
  "oneDNN " SG_TEXT(DNNL_VERSION_MAJOR) "." SG_TEXT(DNNL_VERSION_MINOR) "." SG_TEXT( \
      DNNL_VERSION_PATCH)
#else
#define SG_LIBRARY                                                                    \
  "Eigen " SG_TEXT(EIGEN_WORLD_VERSION) "." SG_TEXT(EIGEN_MAJOR_VERSION) "." SG_TEXT( \
      EIGEN_MINOR_VERSION)
#endif

namespace sg {

const char* products_library(DType dtype) {
  using namespace kernels::onednn;
  const bool as_they_are = !is_16bit(dtype) || (dtype == DType::bf16 && multiplies_bf16());
  return as_they_are ? SG_LIBRARY : SG_LIBRARY ", 16-bit values converted to f32";
}

}  // namespace sg

#include "kernels/table.h"

#ifdef SG_ONEDNN
#include <dnnl.hpp>
#else
#include <Eigen/Core>
#endif

#define SG_TEXT_OF(x) #x
#define SG_TEXT(x) SG_TEXT_OF(x)

namespace sg {

const char* products_library() {
#ifdef SG_ONEDNN
  return "oneDNN " SG_TEXT(DNNL_VERSION_MAJOR) "." SG_TEXT(DNNL_VERSION_MINOR) "." SG_TEXT(DNNL_VERSION_PATCH);
#else
  return "Eigen " SG_TEXT(EIGEN_WORLD_VERSION) "." SG_TEXT(EIGEN_MAJOR_VERSION) "." SG_TEXT(EIGEN_MINOR_VERSION);
#endif
}

}  // namespace sg

#include "kernels/table_of.h"

namespace sg {

const KernelTable* cuda_kernels() {
  static constexpr KernelTable table = kernels::cuda::table_of("cuda");
  return &table;
}

}  // namespace sg

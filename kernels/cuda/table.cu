#include "kernels/cuda/kernels.h"

namespace sg {

const KernelTable* cuda_kernels() {
  using namespace kernels::cuda;
  static constexpr KernelTable table = {
      .name = "cuda",
      .matmul = {.f32 = matmul, .f16 = matmul, .bf16 = matmul},
      .matmul_workspace = matmul_workspace,
      .layernorm = {.f32 = layernorm<float>, .f64 = layernorm<double>, .f16 = layernorm<f16>, .bf16 = layernorm<bf16>},
  };
  return &table;
}

}  // namespace sg

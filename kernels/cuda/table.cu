#include "kernels/cuda/kernels.h"

namespace sg {

const KernelTable* cuda_kernels() {
  using namespace kernels::cuda;
  static constexpr KernelTable table = {
      .name = "cuda",
      .pointwise = {.f32 = pointwise<float>,
                    .f64 = pointwise<double>,
                    .f16 = pointwise<f16>,
                    .bf16 = pointwise<bf16>,
                    .i32 = pointwise<int32_t>,
                    .i64 = pointwise<int64_t>,
                    .u8 = pointwise<uint8_t>,
                    .boolean = pointwise<bool>},
      .matmul = {.f32 = matmul, .f16 = matmul, .bf16 = matmul},
      .matmul_workspace = matmul_workspace,
      .layernorm = {.f32 = layernorm<float>,
                    .f64 = layernorm<double>,
                    .f16 = layernorm<f16>,
                    .bf16 = layernorm<bf16>},
  };
  return &table;
}

}  // namespace sg

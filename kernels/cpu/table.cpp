#include "kernels/cpu/kernels.h"

#define SG_TO_STRING(x) #x
#define SG_NAME_OF(x) SG_TO_STRING(x)

namespace sg::kernels::SG_ISA {
namespace {

#define SG_FLOATS(kernel) \
  { .f32 = kernel<float>, .f64 = kernel<double>, .f16 = kernel<f16>, .bf16 = kernel<bf16> }
#define SG_ALL(kernel)                                                                                             \
  {                                                                                                                \
    .f32 = kernel<float>, .f64 = kernel<double>, .f16 = kernel<f16>, .bf16 = kernel<bf16>, .i32 = kernel<int32_t>, \
    .i64 = kernel<int64_t>, .u8 = kernel<uint8_t>, .boolean = kernel<bool>                                         \
  }

}  // namespace

extern const KernelTable table;
const KernelTable table = {
    .name = SG_NAME_OF(SG_ISA),
    .fill = fill,
    .copy = copy,
    .pointwise = SG_ALL(pointwise),
    .matmul = SG_FLOATS(matmul),
    .matmul_workspace = matmul_workspace,
    .attention = SG_FLOATS(attention),
    .attention_backward = SG_FLOATS(attention_backward),
    .attention_workspace = attention_workspace,
};

}  // namespace sg::kernels::SG_ISA

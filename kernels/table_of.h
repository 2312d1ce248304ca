// The table of a backend or instruction set: one list for all of them, since each has every entry
// in the same dtypes.
#pragma once
#include "kernels/entries.h"

namespace sg::kernels::SG_ISA {

// A kernel template's instances as initializers of an entry.
#define SG_FLOATS(kernel) \
  { .f32 = kernel<float>, .f64 = kernel<double>, .f16 = kernel<f16>, .bf16 = kernel<bf16> }
#define SG_ALL(kernel)                                                                             \
  {                                                                                                \
    .f32 = kernel<float>, .f64 = kernel<double>, .f16 = kernel<f16>, .bf16 = kernel<bf16>,         \
    .i32 = kernel<int32_t>, .i64 = kernel<int64_t>, .u8 = kernel<uint8_t>, .boolean = kernel<bool> \
  }
#define SG_GRADIENTS(kernel) \
  { .f32 = kernel<float>, .f16 = kernel<f16>, .bf16 = kernel<bf16> }

constexpr KernelTable table_of(const char* name) {
  return {
      .name = name,
      .fill = fill,
      .copy = copy,
      .random_uniform = random_uniform,
      .random_normal = random_normal,
      .pointwise = SG_ALL(pointwise),
      .accumulate = SG_FLOATS(accumulate),
      .reduce = {.f32 = reduce<float>,
                 .f64 = reduce<double>,
                 .f16 = reduce<f16>,
                 .bf16 = reduce<bf16>,
                 .i32 = reduce<int32_t>,
                 .i64 = reduce<int64_t>},
      .argmax = SG_FLOATS(argmax),
      .matmul = SG_FLOATS(matmul),
      .matmul_workspace = matmul_workspace,
      .find_outside = {.i32 = find_outside<int32_t>, .i64 = find_outside<int64_t>},
      .find_nonfinite = SG_FLOATS(find_nonfinite),
      .embedding = SG_FLOATS(embedding),
      .embedding_backward = SG_FLOATS(embedding_backward),
      .embedding_backward_workspace = embedding_backward_workspace,
      .softmax = SG_FLOATS(softmax),
      .softmax_backward = SG_FLOATS(softmax_backward),
      .layernorm = SG_FLOATS(layernorm),
      .layernorm_backward = SG_FLOATS(layernorm_backward),
      .layernorm_backward_workspace = layernorm_backward_workspace,
      .rmsnorm = SG_FLOATS(rmsnorm),
      .rmsnorm_backward = SG_FLOATS(rmsnorm_backward),
      .activation_backward = SG_FLOATS(activation_backward),
      .column_sum = SG_FLOATS(column_sum),
      .column_sum_workspace = column_sum_workspace,
      .rope = SG_FLOATS(rope),
      .dropout = SG_FLOATS(dropout),
      .attention = SG_FLOATS(attention),
      .attention_backward = SG_FLOATS(attention_backward),
      .attention_workspace = attention_workspace,
      .cross_entropy = SG_FLOATS(cross_entropy),
      .classifier = SG_FLOATS(classifier),
      .classifier_workspace = classifier_workspace,
      .adam = SG_GRADIENTS(adam),
      .sgd = SG_GRADIENTS(sgd),
      .lion = SG_GRADIENTS(lion),
      .sum_squares = SG_GRADIENTS(sum_squares),
      .tree_sum = SG_FLOATS(tree_sum),
  };
}

#undef SG_FLOATS
#undef SG_ALL
#undef SG_GRADIENTS

}  // namespace sg::kernels::SG_ISA

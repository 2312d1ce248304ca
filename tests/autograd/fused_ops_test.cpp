// A fused op rounds where its parts would store (numerics, rule 9): the same bits, forward and
// backward.
#include <gtest/gtest.h>

#include "autograd/ops.h"

namespace sg {
namespace {

using Floats = std::vector<float>;

struct Inputs {
  explicit Inputs(DType dtype)
      : x(cast(random_normal({7, 33}, {.seed = 1}), dtype), true),
        residual(cast(random_normal({7, 33}, {.seed = 2}), dtype), true),
        gain(cast(random_normal({33}, {.seed = 3}), dtype), true),
        dy(cast(random_normal({7, 33}, {.seed = 4}), dtype)),
        d_sum(cast(random_normal({7, 33}, {.seed = 5}), dtype)) {}
  Variable x, residual, gain, dy, d_sum;

  // Both results, and the gradients where both are used.
  std::vector<Floats> results(const NormedSum& n) const {
    backward(sum(n.y * dy) + sum(n.sum * d_sum));
    std::vector<Floats> all;
    for (const Tensor& t : {n.y.tensor(), n.sum.tensor(), x.grad(), residual.grad(), gain.grad()})
      all.push_back(cast(t, DType::f32).to_vector<float>());
    return all;
  }
};

TEST(FusedOps, ANormOfASumHasTheBitsOfItsParts) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const Inputs fused(dtype), parts(dtype);
    const Variable s = parts.x + parts.residual;
    const std::vector<Floats> expected = parts.results({rmsnorm(s, parts.gain, 1e-5f), s});
    EXPECT_EQ(fused.results(rmsnorm(fused.x, fused.residual, fused.gain, 1e-5f)), expected)
        << name_of(dtype);
  }
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const Inputs fused(dtype), parts(dtype);
    const Variable s = parts.x + parts.residual;
    const std::vector<Floats> expected = parts.results({layernorm(s, parts.gain, {}, 1e-5f), s});
    EXPECT_EQ(fused.results(layernorm(fused.x, fused.residual, fused.gain, {}, 1e-5f)), expected)
        << name_of(dtype);
  }
}

}  // namespace
}  // namespace sg

#include "core/ops.h"

#include <gtest/gtest.h>

#include <functional>

namespace sg {
namespace {

using Floats = std::vector<float>;

TEST(Ops, AGradientIsMadeInPlaceOfOneThatNobodyElseHolds) {
  const Tensor x = from_vector<float>({-1, 2, 3, -4}, {2, 2}), gain = from_vector<float>({1, 1});
  const Normalised layer = layernorm(x, gain, {}, 1e-5f), rms = rmsnorm(x, gain, 1e-5f);
  const std::pair<const char*, std::function<Tensor(Tensor)>> ops[] = {
      {"activation", [&](Tensor dy) { return activation_backward(PointwiseOp::relu, x, std::move(dy), true).dx; }},
      {"layernorm",
       [&](Tensor dy) { return layernorm_backward(std::move(dy), x, gain, layer.mean, layer.rstd, false).dx; }},
      {"rmsnorm", [&](Tensor dy) { return rmsnorm_backward(std::move(dy), x, gain, rms.rstd).dx; }}};
  const Floats given{5, 6, 7, 8};
  for (const auto& [name, op] : ops) {
    Tensor dy = from_vector<float>(given, {2, 2});
    const void* const memory = dy.view().data;
    const Tensor held = op(dy);
    EXPECT_NE(held.view().data, memory) << name;
    EXPECT_EQ(dy.to_vector<float>(), given) << name;
    const Tensor moved = op(std::move(dy));
    EXPECT_EQ(moved.view().data, memory) << name;
    EXPECT_EQ(moved.to_vector<float>(), held.to_vector<float>()) << name;
    // Half of a larger block: the result must not keep all of it.
    const Tensor half = op(from_vector<float>({5, 6, 7, 8, 0, 0, 0, 0}, {4, 2}).slice(0, 0, 2));
    EXPECT_EQ(half.storage()->bytes(), half.bytes()) << name;
  }
}

}  // namespace
}  // namespace sg

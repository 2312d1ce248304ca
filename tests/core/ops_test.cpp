#include "core/ops.h"

#include <gtest/gtest.h>

#include <functional>

#include "tests/errors.h"

namespace sg {
namespace {

using Floats = std::vector<float>;

TEST(Ops, AGradientIsMadeInPlaceOfOneThatNobodyElseHolds) {
  const Tensor x = from_vector<float>({-1, 2, 3, -4}, {2, 2}), gain = from_vector<float>({1, 1});
  const Normalised layer = layernorm(x, gain, {}, 1e-5f), rms = rmsnorm(x, gain, 1e-5f);
  const std::pair<const char*, std::function<Tensor(Tensor)>> ops[] = {
      {"activation",
       [&](Tensor dy) {
         return activation_backward(PointwiseOp::relu, x, std::move(dy), true).dx;
       }},
      {"layernorm",
       [&](Tensor dy) {
         return layernorm_backward(std::move(dy), x, gain, layer.mean, layer.rstd, false).dx;
       }},
      {"rmsnorm",
       [&](Tensor dy) { return rmsnorm_backward(std::move(dy), x, gain, rms.rstd).dx; }}};
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

TEST(Ops, DevicesThatHoldNoTensorsAreRefused) {
  const Device cuda{DeviceType::cuda, 0};
  test::error_of(ErrorKind::usage, [&] { empty({4}, DType::f32, cuda); });
  test::error_of(ErrorKind::usage, [&] {
    DeviceGuard guard(cuda);
    zeros({4});
  });
  test::error_of(ErrorKind::usage, [&] { to(zeros({4}), cuda); });
}

TEST(Ops, ValuesDontComeOutOfMeta) {
  const Tensor nothing = empty({4}, DType::f32, meta());
  test::error_of(ErrorKind::usage, [&] { to(nothing, cpu()); });
  test::error_of(ErrorKind::usage, [&] { copy_(zeros({4}), nothing); });
  EXPECT_NO_THROW(copy_(nothing, zeros({4})));
}

TEST(Ops, EntriesThatATypeLacksAreNamed) {
  const Tensor i = from_vector<int32_t>({6, 7}), b = from_vector<bool>({true, false});
  const std::string isa = kernel_table(cpu()).name;
  const std::pair<std::string, std::function<void()>> cases[] = {
      {"div: no " + isa + " kernel for i32", [&] { div(i, i); }},
      {"exp: no " + isa + " kernel for i32", [&] { pointwise(PointwiseOp::exp, {i}); }},
      {"pow_scalar: no " + isa + " kernel for i32",
       [&] { pointwise(PointwiseOp::pow_scalar, {i}, 2); }},
      {"add: no " + isa + " kernel for bool", [&] { add(b, b); }},
      {"mul_scalar: no " + isa + " kernel for bool", [&] { scale(b, 2); }},
  };
  for (const auto& [expected, call] : cases)
    EXPECT_EQ(test::error_of(ErrorKind::usage, call), expected);
}

TEST(Ops, SumsInATypeThatCantHoldThemAreRefused) {
  const Tensor wide = full({4}, 1, DType::f64), narrow = full({4}, 1);
  const Tensor inputs[] = {wide, wide};
  test::error_of(ErrorKind::usage, [&] { accumulate_(narrow, wide); });
  test::error_of(ErrorKind::usage, [&] { tree_sum(inputs, 1, DType::f32); });
  EXPECT_EQ(tree_sum(inputs, 1, DType::f64).to_vector<double>(), std::vector<double>(4, 2));
}

TEST(Ops, AnOutputMayOverlapItsInputs) {
  const auto fresh = [] { return from_vector<float>({1, 2, 3, 4, 5, 6}); };
  Tensor x = fresh();
  copy_(x.slice(0, 1, 6), x.slice(0, 0, 5));
  EXPECT_EQ(x.to_vector<float>(), (Floats{1, 1, 2, 3, 4, 5}));
  x = fresh();
  pointwise_(PointwiseOp::add, x, {x, x.slice(0, 0, 1)});
  EXPECT_EQ(x.to_vector<float>(), (Floats{2, 3, 4, 5, 6, 7}));
  x = fresh();
  accumulate_(x.slice(0, 2, 6), x.slice(0, 0, 4));
  EXPECT_EQ(x.to_vector<float>(), (Floats{1, 2, 4, 6, 8, 10}));
  x = fresh();
  copy_(x.reshape({2, 3}).slice(1, 0, 2), x.slice(0, 0, 4).reshape({2, 2}).transposed());
  EXPECT_EQ(x.to_vector<float>(), (Floats{1, 3, 3, 2, 4, 6}));
}

TEST(Ops, AnOutputWhoseElementsLieOnOneAnotherIsRefused) {
  const Tensor x = zeros({1}).expand({3}), y = full({3}, 1);
  test::error_of(ErrorKind::usage, [&] { copy_(x, y); });
  test::error_of(ErrorKind::usage, [&] { pointwise_(PointwiseOp::neg, x, {y}); });
}

TEST(Ops, SumsOfNothingAreZeroOrTheBias) {
  EXPECT_EQ(matmul(zeros({2, 3, 0}), zeros({0, 2})).to_vector<float>(), Floats(12, 0));
  EXPECT_EQ(matmul(zeros({2, 0}), zeros({0, 2}), full({2}, 3)).to_vector<float>(), Floats(4, 3));
  const Tensor out = full({2, 2}, 5);
  matmul_(out, zeros({2, 0}), zeros({0, 2}), true);
  EXPECT_EQ(out.to_vector<float>(), Floats(4, 5));
  EXPECT_EQ(column_sum(zeros({0, 3})).to_vector<float>(), Floats(3, 0));
  EXPECT_EQ(softmax(zeros({3, 0})).shape(), Shape({3, 0}));
}

}  // namespace
}  // namespace sg

// One model's pass in 16 bits, on meta, and on several threads at once.
#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "autograd/ops.h"

namespace sg {
namespace {

struct Block {
  std::vector<Variable> parameters;
  Tensor ids, targets;

  explicit Block(DType dtype) {
    uint64_t op = 0;
    const auto parameter = [&](const Shape& shape) {
      ++op;
      parameters.emplace_back(
          cast(random_normal(shape, {.seed = 7, .op = op}), dtype), true, std::to_string(op));
    };
    parameter({11, 8});  // the table, tied to the classifier
    parameter({8});
    parameter({8});
    parameter({24, 8});
    parameter({16, 8});
    parameter({16});
    parameter({8, 16});
    ids = cast(scale(random_uniform({2, 3}, {.seed = 3}), 10), DType::i64);
    targets = cast(scale(random_uniform({2, 3}, {.seed = 4}), 10), DType::i64);
  }

  Variable loss() const {
    const auto& p = parameters;
    const Variable x = embedding(p[0], ids);
    const Variable a =
        attention_qkv(linear(layernorm(x, p[1], p[2], 1e-5f), p[3]), 2, {.causal = true});
    const NormedSum n = layernorm(a, x, p[1], p[2], 1e-5f);
    const Variable h = linear(linear_activation(PointwiseOp::gelu_tanh, n.y, p[4], p[5]), p[6]);
    return classifier_loss(n.sum + dropout(h, 0.1f, {.seed = 9}), p[0], targets);
  }
};

std::vector<float> as_floats(const Tensor& x) {
  return cast(x, DType::f32).to_vector<float>();
}

// |a − b| / |b|
double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double apart = 0, length = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    apart += (a[i] - b[i]) * (a[i] - b[i]);
    length += b[i] * b[i];
  }
  return std::sqrt(apart / length);
}

TEST(Devices, SixteenBitGradientsHaveTheParametersDType) {
  const Block exact(DType::f32);
  backward(exact.loss());
  for (DType dtype : {DType::bf16, DType::f16}) {
    const Block block(dtype);
    const Variable loss = block.loss();
    EXPECT_EQ(loss.dtype(), DType::f32);
    EXPECT_EQ(backward(loss).size(), block.parameters.size());
    for (size_t i = 0; i < block.parameters.size(); ++i) {
      ASSERT_EQ(block.parameters[i].grad().dtype(), dtype);
      const auto found = as_floats(block.parameters[i].grad()),
                 expected = as_floats(exact.parameters[i].grad());
      EXPECT_LT(distance(found, expected), dtype == DType::bf16 ? 0.1 : 0.01)
          << block.parameters[i].name();
    }
  }
}

TEST(Devices, OnMetaShapesAndBooksAreKept) {
  const auto peak = [](Device device) {
    DeviceGuard guard(device);
    const Block block(DType::f32);
    pool(device).reset_peaks();
    const uint64_t before = pool(device).ledger().total();
    backward(block.loss());
    for (const Variable& parameter : block.parameters)
      EXPECT_EQ(parameter.grad().shape(), parameter.shape());
    return pool(device).ledger().total_peak() - before;
  };
  EXPECT_EQ(peak(meta()), peak(cpu()));
}

TEST(Devices, ThreadsKeepTheirOwnGraphs) {
  const Block alone(DType::f32);
  backward(alone.loss());
  std::vector<std::vector<float>> seen(4);
  std::vector<std::thread> ranks;
  for (size_t r = 0; r < seen.size(); ++r) {
    ranks.emplace_back([&, r] {
      DeviceGuard guard(cpu(static_cast<int>(r)));
      for (int step = 0; step < 5; ++step) {
        const Block block(DType::f32);
        backward(block.loss());
        seen[r] = block.parameters[0].grad().to_vector<float>();
      }
    });
  }
  for (std::thread& rank : ranks)
    rank.join();
  for (const auto& gradient : seen)
    EXPECT_EQ(gradient, alone.parameters[0].grad().to_vector<float>());
}

}  // namespace
}  // namespace sg

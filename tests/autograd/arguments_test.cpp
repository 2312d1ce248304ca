// The differentiable ops off the straight path: nothing given, nothing in it, targets left out or
// outside, values at the edge of a derivative, a graph that two threads recorded.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <set>
#include <thread>

#include "autograd/ops.h"
#include "tests/errors.h"

namespace sg {
namespace {

using Floats = std::vector<float>;

Variable leaf(const Shape& shape, double value = 1) {
  return Variable(full(shape, value), true);
}
Tensor ids(std::vector<int32_t> values) {
  return from_vector(values);
}

struct Row {
  std::string name;
  std::function<std::vector<Variable>(int64_t)> inputs;  // for a batch of n
  std::function<Variable(const std::vector<Variable>&)> call;
  std::set<size_t> optional = {};
};
using Inputs = std::vector<Variable>;

std::vector<Row> memory_and_pointwise_rows() {
  const auto one = [](int64_t n) { return Inputs{leaf({n, 3})}; };
  const auto two = [](int64_t n) { return Inputs{leaf({n, 3}), leaf({3})}; };
  std::vector<Row> rows = {
      {"reshape", one, [](const Inputs& x) { return reshape(x[0], {-1}); }},
      {"transpose", one, [](const Inputs& x) { return transpose(x[0], 0, 1); }},
      {"permute",
       one,
       [](const Inputs& x) {
         return permute(x[0], {1, 0});
       }},
      {"slice", one, [](const Inputs& x) { return slice(x[0], 1, 1, 2); }},
      {"select", one, [](const Inputs& x) { return select(x[0], 1, 1); }},
      {"expand",
       one,
       [](const Inputs& x) {
         return expand(x[0], {2, x[0].size(0), 3});
       }},
      {"concatenate",
       [](int64_t n) {
         return Inputs{leaf({n, 3}), leaf({n, 2})};
       },
       [](const Inputs& x) {
         return concatenate({x[0], x[1]}, 1);
       }},
      {"cast", one, [](const Inputs& x) { return cast(x[0], DType::f64); }},
      {"add", two, [](const Inputs& x) { return add(x[0], x[1]); }},
      {"sub", two, [](const Inputs& x) { return sub(x[0], x[1]); }},
      {"mul", two, [](const Inputs& x) { return mul(x[0], x[1]); }},
      {"div", two, [](const Inputs& x) { return div(x[0], x[1]); }},
      {"silu_gate", two, [](const Inputs& x) { return silu_gate(x[0], x[1]); }},
      {"maximum", two, [](const Inputs& x) { return maximum(x[0], x[1]); }},
      {"minimum", two, [](const Inputs& x) { return minimum(x[0], x[1]); }},
      {"mul_add",
       [](int64_t n) {
         return Inputs{leaf({n, 3}), leaf({3}), leaf({n, 3})};
       },
       [](const Inputs& x) { return mul_add(x[0], x[1], x[2]); }},
      {"where",
       two,
       [](const Inputs& x) { return where(full({3}, 1, DType::boolean), x[0], x[1]); }},
      {"add", one, [](const Inputs& x) { return add(x[0], 2.0); }},
      {"scale", one, [](const Inputs& x) { return scale(x[0], 2); }},
      {"pow", one, [](const Inputs& x) { return pow(x[0], 3); }},
      {"sum", one, [](const Inputs& x) { return sum(x[0], {0}); }},
      {"mean", one, [](const Inputs& x) { return mean(x[0], {1}); }},
      {"max", one, [](const Inputs& x) { return max(x[0], {1}); }},
      {"min", one, [](const Inputs& x) { return min(x[0], {1}); }},
  };
  using enum PointwiseOp;
  for (const PointwiseOp f :
       {neg, abs, exp, log, sqrt, rsqrt, tanh, sigmoid, relu, gelu, gelu_tanh, silu})
    rows.push_back({"unary", one, [f](const Inputs& x) { return unary(f, x[0]); }});
  return rows;
}

Tensor counting(int64_t n) {
  std::vector<int32_t> values(static_cast<size_t>(n));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<int32_t>(i) % 3;
  return ids(values);
}

std::vector<Row> product_and_row_rows() {
  return {
      {"matmul",
       [](int64_t n) {
         return Inputs{leaf({2, n, 4}), leaf({4, 3})};
       },
       [](const Inputs& x) { return matmul(x[0], x[1]); }},
      {"linear",
       [](int64_t n) {
         return Inputs{leaf({n, 4}), leaf({3, 4}), leaf({3})};
       },
       [](const Inputs& x) { return linear(x[0], x[1], x[2]); },
       {2}},
      {"linear_activation",
       [](int64_t n) {
         return Inputs{leaf({n, 4}), leaf({3, 4}), leaf({3})};
       },
       [](const Inputs& x) { return linear_activation(PointwiseOp::gelu, x[0], x[1], x[2]); },
       {2}},
      {"softmax",
       [](int64_t n) {
         return Inputs{leaf({n, 4})};
       },
       [](const Inputs& x) { return softmax(x[0]); }},
      {"layernorm",
       [](int64_t n) {
         return Inputs{leaf({n, 4}), leaf({4}), leaf({4})};
       },
       [](const Inputs& x) { return layernorm(x[0], x[1], x[2], 1e-5f); },
       {2}},
      {"rmsnorm",
       [](int64_t n) {
         return Inputs{leaf({n, 4}), leaf({4})};
       },
       [](const Inputs& x) { return rmsnorm(x[0], x[1], 1e-5f); }},
      {"layernorm",
       [](int64_t n) {
         return Inputs{leaf({n, 4}), leaf({n, 4}), leaf({4})};
       },
       [](const Inputs& x) { return layernorm(x[0], x[1], x[2], {}, 1e-5f).y; },
       {1}},
      {"rmsnorm",
       [](int64_t n) {
         return Inputs{leaf({n, 4}), leaf({n, 4}), leaf({4})};
       },
       [](const Inputs& x) { return rmsnorm(x[0], x[1], x[2], 1e-5f).y; },
       {1}},
  };
}

std::vector<Row> table_attention_and_loss_rows() {
  const auto heads = [](int64_t n) {
    return Inputs{leaf({2, 2, n, 4}), leaf({2, 2, n, 4}), leaf({2, 2, n, 4})};
  };
  const auto sequences = [](int64_t n) { return Inputs{leaf({n, 4, 12})}; };
  return {
      {"gather_rows",
       [](int64_t n) {
         return Inputs{leaf({3, 4}), leaf({n})};
       },
       [](const Inputs& x) { return gather_rows(x[0], counting(x[1].numel())); }},
      {"embedding",
       [](int64_t n) {
         return Inputs{leaf({3, 4}), leaf({n})};
       },
       [](const Inputs& x) { return embedding(x[0], counting(x[1].numel())); }},
      {"dropout",
       [](int64_t n) {
         return Inputs{leaf({n, 4})};
       },
       [](const Inputs& x) { return dropout(x[0], 0.5f, {.seed = 1}); }},
      {"rope",
       [](int64_t n) {
         return Inputs{leaf({2, n, 2, 4})};
       },
       [](const Inputs& x) { return rope(x[0], counting(x[0].size(1)), {}); }},
      {"attention",
       heads,
       [](const Inputs& x) { return attention(x[0], x[1], x[2], {.causal = true}); }},
      {"attention_qkv",
       sequences,
       [](const Inputs& x) { return attention_qkv(x[0], 2, {.causal = true}); }},
      {"attention_qkv",
       [](int64_t n) {
         return Inputs{leaf({2, n, 12})};
       },
       [](const Inputs& x) { return attention_qkv(x[0], 2, {.causal = true}); }},
      {"cross_entropy",
       [](int64_t n) {
         return Inputs{leaf({n, 4})};
       },
       [](const Inputs& x) { return cross_entropy(x[0], counting(x[0].size(0))); }},
      {"classifier_loss",
       [](int64_t n) {
         return Inputs{leaf({n, 4}), leaf({3, 4})};
       },
       [](const Inputs& x) { return classifier_loss(x[0], x[1], counting(x[0].size(0))); }},
  };
}

std::vector<Row> all_rows() {
  std::vector<Row> rows = memory_and_pointwise_rows();
  for (const auto& part : {product_and_row_rows(), table_attention_and_loss_rows()})
    rows.insert(rows.end(), part.begin(), part.end());
  return rows;
}

bool finite(const Tensor& x) {
  for (const float value : cast(x, DType::f32).to_vector<float>())
    if (!std::isfinite(value))
      return false;
  return true;
}

// Every gradient has its input's shape and no value that nobody computed; a weight's is zero where
// no row used it.
TEST(Arguments, EmptyBatchesGoForwardAndBackward) {
  for (const Row& row : all_rows()) {
    for (const int64_t n : {5, 0}) {
      Inputs inputs = row.inputs(n);
      SCOPED_TRACE(row.name + " of " + std::to_string(n));
      try {
        backward(sum(cast(row.call(inputs), DType::f32)));
      } catch (const Error& e) {
        ADD_FAILURE() << e.what();
      }
      for (const Variable& x : inputs) {
        if (!x.grad().defined())
          continue;
        EXPECT_EQ(x.grad().shape(), x.shape());
        EXPECT_TRUE(finite(x.grad()));
        const Floats zeros(static_cast<size_t>(x.numel()), 0);
        if (n == 0 && row.name != "add" && row.name != "sub") {
          EXPECT_EQ(x.grad().to_vector<float>(), zeros);
        }
      }
    }
  }
}

TEST(Arguments, ProductsOverNothingHaveTheirBiasAndItsGradient) {
  const Variable x = leaf({4, 0}), w = leaf({3, 0}), b = leaf({3}, 2);
  const Variable y = linear(x, w, b);
  EXPECT_EQ(y.tensor().to_vector<float>(), Floats(12, 2));
  backward(sum(y));
  EXPECT_EQ(b.grad().to_vector<float>(), Floats(3, 4));
}

TEST(Arguments, UndefinedVariablesAreNamedWithTheirOp) {
  for (const Row& row : all_rows()) {
    for (size_t i = 0; i < row.inputs(5).size(); ++i) {
      if (row.optional.contains(i) || row.name == "gather_rows" || row.name == "embedding")
        continue;
      Inputs inputs = row.inputs(5);
      inputs[i] = {};
      const auto message = test::error_of(ErrorKind::usage, [&] { row.call(inputs); });
      EXPECT_NE(message.find("undefined"), std::string::npos) << row.name << ": " << message;
    }
  }
  for (const auto& call :
       std::vector<std::function<void()>>{[] { embedding(Variable(), counting(2)); },
                                          [] { gather_rows(Variable(), counting(2)); },
                                          [] {
                                            embedding(leaf({3, 4}), Tensor());
                                          },
                                          [] {
                                            cross_entropy(leaf({2, 4}), Tensor());
                                          },
                                          [] {
                                            classifier_loss(leaf({2, 4}), leaf({3, 4}), Tensor());
                                          },
                                          [] { where(Tensor(), leaf({2}), leaf({2})); },
                                          [] {
                                            rope(leaf({2, 2, 2, 4}), Tensor(), {});
                                          },
                                          [] { backward(Variable()); },
                                          [] { Variable().set_requires_grad(true); },
                                          [] { Variable().name(); },
                                          [] { Variable().detach(); },
                                          [] { Variable().set_grad({}); },
                                          [] { Variable().is_leaf(); },
                                          [] { Variable(Tensor(), true); }}) {
    EXPECT_NE(test::error_of(ErrorKind::usage, call).find("undefined"), std::string::npos);
  }
}

TEST(Arguments, GradientsStayOnTheirDevice) {
  const Variable x = leaf({2});
  EXPECT_THROW(backward(x * x, {.seed = empty({2}, DType::f32, meta())}), Error);
  const Variable y = record("user", x.tensor(), {x}, [](const Tensor&) -> Gradients {
    return {empty({2}, DType::f32, meta())};
  });
  EXPECT_THROW(backward(sum(y)), Error);
}

// ---- targets

TEST(Targets, MinusOneAloneLeavesARowOutOfSumMeanAndGradient) {
  const Variable logits = leaf({4, 8}, 0), x = leaf({4, 4}), w = leaf({8, 4}, 0);
  const Tensor targets = ids({1, -1, 2, -1});
  for (const bool fused : {false, true}) {
    const Variable loss = fused ? classifier_loss(x, w, targets) : cross_entropy(logits, targets);
    EXPECT_NEAR(loss.item(), std::log(8.0), 1e-6) << fused;
    backward(loss);
  }
  const auto g = logits.grad().to_vector<float>();
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_NEAR(g[i], ((i == 1 ? -1 : 0) + 1 / 8.0) / 2, 1e-6);
    EXPECT_EQ(g[8 + i], 0);
    EXPECT_EQ(g[24 + i], 0);
  }
  for (const int32_t wrong : {-100, -2, 8, 1 << 30}) {
    for (const auto& call :
         std::vector<std::function<void()>>{[&] {
                                              cross_entropy(logits, ids({1, 2, wrong, -1}));
                                            },
                                            [&] {
                                              classifier_loss(x, w, ids({1, 2, wrong, -1}));
                                            }}) {
      const auto message = test::error_of(ErrorKind::usage, call);
      EXPECT_NE(message.find(fmt::format("target {} at position (2) isn't in [0, 8)", wrong)),
                std::string::npos)
          << message;
    }
  }
}

// ---- derivatives at the edge

TEST(Derivatives, OfPowersAtZero) {
  const std::pair<double, Floats> rows[] = {
      {0, {0, 0}}, {1, {1, 1}}, {2, {0, 4}}, {3, {0, 12}}, {1.5, {0, 2.1213203f}}};
  for (const auto& [exponent, expected] : rows) {
    const Variable x(from_vector<float>({0, 2}), true);
    backward(sum(pow(x, exponent)));
    const auto found = x.grad().to_vector<float>();
    for (size_t i = 0; i < 2; ++i)
      EXPECT_NEAR(found[i], expected[i], 1e-5) << "x^" << exponent;
  }
}

// ---- threads

TEST(Threads, MayRecordPartsOfOneGraph) {
  const Variable x(from_vector<float>({2}), true, "x");
  for (int i = 0; i < 10; ++i)
    static_cast<void>(x * x);  // this thread has recorded some ops
  const Variable y = x * x;
  Variable z;
  std::thread([&] { z = scale(y, 3) * y; }).join();
  const Variable root = z + y;
  EXPECT_EQ(backward(root).size(), 1u);
  EXPECT_EQ(x.grad().item<float>(), 12 * 8 + 4);  // of 3x⁴ + x²
}

}  // namespace
}  // namespace sg

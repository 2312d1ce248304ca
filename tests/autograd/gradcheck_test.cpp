// Every differentiable op against central differences in f64: one table, a row for each op and each
// way that its shapes differ.
#include "autograd/gradcheck.h"

#include <gtest/gtest.h>

#include <random>

#include "autograd/ops.h"

namespace sg {
namespace {

using Inputs = std::span<const Variable>;

struct Row {
  const char* name;
  std::vector<Shape> shapes;
  std::function<Variable(Inputs)> op;
  double low = -1, high = 1;  // where the inputs lie
};

Tensor random_tensor(const Shape& shape, double low, double high, std::mt19937_64& source) {
  std::uniform_real_distribution<double> draw(low, high);
  std::vector<double> values(static_cast<size_t>(numel(shape)));
  for (double& value : values)
    value = draw(source);
  return from_vector(values, shape);
}

Tensor ids(std::vector<int64_t> values, const Shape& shape) {
  return from_vector(values, shape);
}
Tensor checkerboard(const Shape& shape) {
  std::vector<int64_t> values(static_cast<size_t>(numel(shape)));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = i % 3 != 0;
  return cast(from_vector(values, shape), DType::boolean);
}

Row unary_row(PointwiseOp f, double low = -1, double high = 1) {
  return {name_of(f), {{2, 3}}, [f](Inputs x) { return unary(f, x[0]); }, low, high};
}

using Binary = Variable (*)(const Variable&, const Variable&);
Row binary_row(const char* name, Binary f, Shape a, Shape b, double low = -1, double high = 1) {
  return {name, {a, b}, [f](Inputs x) { return f(x[0], x[1]); }, low, high};
}

std::vector<Row> pointwise_rows() {
  return {
      unary_row(PointwiseOp::neg),
      unary_row(PointwiseOp::abs, 0.1, 2),
      unary_row(PointwiseOp::abs, -2, -0.1),
      unary_row(PointwiseOp::exp),
      unary_row(PointwiseOp::log, 0.5, 3),
      unary_row(PointwiseOp::sqrt, 0.5, 3),
      unary_row(PointwiseOp::rsqrt, 0.5, 3),
      unary_row(PointwiseOp::tanh),
      unary_row(PointwiseOp::sigmoid),
      unary_row(PointwiseOp::relu, 0.1, 2),
      unary_row(PointwiseOp::relu, -2, -0.1),
      unary_row(PointwiseOp::gelu, -3, 3),
      unary_row(PointwiseOp::gelu_tanh, -3, 3),
      unary_row(PointwiseOp::silu, -3, 3),
      binary_row("add (2, 3) (2, 3)", add, {2, 3}, {2, 3}),
      binary_row("add (2, 1, 3) (4, 1)", add, {2, 1, 3}, {4, 1}),
      binary_row("add (2, 3) (3)", add, {2, 3}, {3}),
      binary_row("add () (2, 2)", add, Shape{}, {2, 2}),
      binary_row("sub (2, 3) (2, 1)", sub, {2, 3}, {2, 1}),
      binary_row("mul (2, 3) (2, 3)", mul, {2, 3}, {2, 3}),
      binary_row("mul (3) (2, 1)", mul, {3}, {2, 1}),
      binary_row("div (2, 3) (2, 3)", div, {2, 3}, {2, 3}, 0.5, 2),
      binary_row("div (2, 1) (3)", div, {2, 1}, {3}, 0.5, 2),
      binary_row("maximum (2, 3) (3)", maximum, {2, 3}, {3}),
      binary_row("minimum (1, 3) (2, 1)", minimum, {1, 3}, {2, 1}),
      binary_row("silu_gate (2, 3) (2, 3)", silu_gate, {2, 3}, {2, 3}),
      binary_row("silu_gate (2, 3) (3)", silu_gate, {2, 3}, {3}),
      {"mul_add", {{2, 3}, {3}, {2, 1}}, [](Inputs x) { return mul_add(x[0], x[1], x[2]); }},
      {"where",
       {{2, 3}, {3}},
       [](Inputs x) {
         return where(checkerboard({2, 3}), x[0], x[1]);
       }},
      {"add scalar", {{2, 3}}, [](Inputs x) { return add(x[0], 2.5); }},
      {"scale", {{2, 3}}, [](Inputs x) { return -0.5 * x[0]; }},
      {"pow", {{2, 3}}, [](Inputs x) { return pow(x[0], 2.5); }, 0.5, 2},
      {"a variable twice",
       {{2, 3}},
       [](Inputs x) { return x[0] * x[0] - x[0] / (x[0] + x[0]); },
       0.5,
       2},
  };
}

std::vector<Row> memory_and_reduction_rows() {
  return {
      {"reshape",
       {{2, 6}},
       [](Inputs x) {
         return reshape(x[0], {3, -1});
       }},
      {"reshape of a transpose",
       {{2, 3}},
       [](Inputs x) { return reshape(transpose(x[0], 0, 1), {6}); }},
      {"transpose", {{2, 3, 2}}, [](Inputs x) { return transpose(x[0], 0, 2); }},
      {"permute",
       {{2, 3, 4}},
       [](Inputs x) {
         return permute(x[0], {2, 0, 1});
       }},
      {"slice", {{2, 5}}, [](Inputs x) { return slice(x[0], 1, 1, 3); }},
      {"slice at an end", {{4, 2}}, [](Inputs x) { return slice(x[0], 0, 2, 4); }},
      {"select", {{2, 3, 2}}, [](Inputs x) { return select(x[0], -2, 1); }},
      {"expand",
       {{2, 1, 3}},
       [](Inputs x) {
         return expand(x[0], {2, 2, 4, 3});
       }},
      {"concatenate", {{2, 1}, {2, 3}}, [](Inputs x) { return concatenate(x, 1); }},
      {"concatenate with itself",
       {{2, 2}},
       [](Inputs x) {
         return concatenate({x[0], x[0]}, 0);
       }},
      {"gather_rows",
       {{4, 2}},
       [](Inputs x) {
         return gather_rows(x[0], ids({3, 0, 3}, {3}));
       }},
      {"cast", {{2, 2}}, [](Inputs x) { return cast(x[0], DType::f64); }},
      {"sum", {{2, 3}}, [](Inputs x) { return sum(x[0]); }},
      {"sum over one", {{2, 3, 2}}, [](Inputs x) { return sum(x[0], {1}); }},
      {"sum kept",
       {{2, 3, 2}},
       [](Inputs x) {
         return sum(x[0], {0, -1}, true);
       }},
      {"mean", {{2, 3}}, [](Inputs x) { return mean(x[0]); }},
      {"mean over two",
       {{2, 3, 2}},
       [](Inputs x) {
         return mean(x[0], {0, 2});
       }},
      {"max", {{2, 3}}, [](Inputs x) { return max(x[0], {1}); }},
      {"max of all", {{2, 3}}, [](Inputs x) { return max(x[0]); }},
      {"min kept", {{2, 3}}, [](Inputs x) { return min(x[0], {0}, true); }},
  };
}

std::vector<Row> product_rows() {
  return {
      {"matmul", {{2, 3}, {3, 4}}, [](Inputs x) { return matmul(x[0], x[1]); }},
      {"matmul, one weight", {{2, 2, 3}, {3, 4}}, [](Inputs x) { return matmul(x[0], x[1]); }},
      {"matmul, batched", {{2, 2, 3}, {2, 3, 2}}, [](Inputs x) { return matmul(x[0], x[1]); }},
      {"matmul, broadcast", {{2, 1, 2, 3}, {3, 3, 2}}, [](Inputs x) { return matmul(x[0], x[1]); }},
      {"matmul, vector batch", {{2, 3}, {2, 3, 2}}, [](Inputs x) { return matmul(x[0], x[1]); }},
      {"matmul of transposes",
       {{3, 2}, {4, 3}},
       [](Inputs x) { return matmul(transpose(x[0], 0, 1), transpose(x[1], 0, 1)); }},
      {"linear", {{2, 2, 3}, {4, 3}, {4}}, [](Inputs x) { return linear(x[0], x[1], x[2]); }},
      {"linear without bias", {{2, 3}, {4, 3}}, [](Inputs x) { return linear(x[0], x[1]); }},
      {"linear of a vector", {{3}, {4, 3}, {4}}, [](Inputs x) { return linear(x[0], x[1], x[2]); }},
      {"linear of a transpose",
       {{3, 2}, {4, 3}},
       [](Inputs x) { return linear(transpose(x[0], 0, 1), x[1]); }},
      {"linear_activation",
       {{2, 2, 3}, {4, 3}, {4}},
       [](Inputs x) { return linear_activation(PointwiseOp::gelu_tanh, x[0], x[1], x[2]); }},
      {"linear_activation without bias",
       {{2, 3}, {4, 3}},
       [](Inputs x) { return linear_activation(PointwiseOp::silu, x[0], x[1]); }},
  };
}

std::vector<Row> row_rows() {
  const auto key = RandomKey{.seed = 3, .op = 5};
  return {
      {"softmax", {{2, 4}}, [](Inputs x) { return softmax(x[0]); }},
      {"layernorm",
       {{2, 2, 4}, {4}, {4}},
       [](Inputs x) { return layernorm(x[0], x[1], x[2], 1e-5f); }},
      {"layernorm without bias",
       {{3, 4}, {4}},
       [](Inputs x) { return layernorm(x[0], x[1], Variable(), 1e-5f); }},
      {"layernorm of a sum",
       {{2, 4}, {2, 4}, {4}, {4}},
       [](Inputs x) {
         const NormedSum n = layernorm(x[0], x[1], x[2], x[3], 1e-5f);
         return n.y + n.sum * n.sum;
       }},
      {"layernorm, only the sum",
       {{2, 4}, {2, 4}, {4}, {4}},
       [](Inputs x) { return layernorm(x[0], x[1], x[2], x[3], 1e-5f).sum; }},
      {"layernorm, only the norm",
       {{2, 4}, {2, 4}, {4}, {4}},
       [](Inputs x) { return layernorm(x[0], x[1], x[2], x[3], 1e-5f).y; }},
      {"rmsnorm", {{2, 2, 4}, {4}}, [](Inputs x) { return rmsnorm(x[0], x[1], 1e-5f); }},
      {"rmsnorm of a sum",
       {{2, 4}, {2, 4}, {4}},
       [](Inputs x) {
         const NormedSum n = rmsnorm(x[0], x[1], x[2], 1e-5f);
         return n.y * n.sum;
       }},
      {"embedding",
       {{5, 3}},
       [](Inputs x) {
         return embedding(x[0], ids({4, 1, 1, 0}, {2, 2}));
       }},
      {"dropout", {{4, 8}}, [key](Inputs x) { return dropout(x[0], 0.5f, key); }},
      {"rope",
       {{2, 3, 2, 4}},
       [](Inputs x) {
         return rope(x[0], ids({0, 1, 5}, {3}), {.theta = 100});
       }},
      {"rope as yarn has it",
       {{2, 3, 2, 4}},
       [](Inputs x) {
         return rope(x[0],
                     ids({0, 1, 5}, {3}),
                     {.theta = 100,
                      .scaling = RopeScaling::yarn,
                      .factor = 4,
                      .original_context = 8,
                      .fast = 32,
                      .magnitude = 1.5f});
       }},
  };
}

Row attention_row(const char* name, std::vector<Shape> shapes, AttentionParameters parameters) {
  return {name, std::move(shapes), [parameters](Inputs x) {
            return attention(x[0], x[1], x[2], parameters);
          }};
}

std::vector<Row> attention_and_loss_rows() {
  const Shape q{2, 2, 3, 4}, shared{2, 1, 3, 4}, longer{2, 2, 5, 4};
  AttentionParameters masked,
      dropped{.causal = true, .dropout = 0.3f, .random = {.seed = 1, .op = 2}};
  masked.mask = checkerboard({2, 1, 3, 3});
  return {
      attention_row("attention", {q, q, q}, {}),
      attention_row("attention, causal", {q, q, q}, {.causal = true}),
      attention_row("attention, scaled", {q, q, q}, {.scale = 0.25f}),
      attention_row("attention, masked", {q, q, q}, masked),
      attention_row("attention, shared keys", {q, shared, shared}, {.causal = true}),
      attention_row("attention, more keys", {q, longer, longer}, {.causal = true}),
      attention_row("attention, window", {q, longer, longer}, {.causal = true, .window = 2}),
      attention_row("attention, dropout", {q, q, q}, dropped),
      {"attention_qkv",
       {{2, 3, 12}},
       [](Inputs x) { return attention_qkv(x[0], 2, {.causal = true}); }},
      {"cross_entropy",
       {{4, 5}},
       [](Inputs x) {
         return cross_entropy(x[0], ids({4, 0, 2, 2}, {4}));
       }},
      {"cross_entropy, ignored rows",
       {{2, 3, 5}},
       [](Inputs x) {
         return cross_entropy(x[0], ids({4, -1, 2, 2, -1, 0}, {2, 3}));
       }},
      {"classifier_loss",
       {{2, 2, 3}, {5, 3}},
       [](Inputs x) {
         return classifier_loss(x[0], x[1], ids({4, 0, 2, 2}, {2, 2}));
       }},
      {"classifier_loss, ignored rows",
       {{3, 3}, {5, 3}},
       [](Inputs x) {
         return classifier_loss(x[0], x[1], ids({4, -1, 2}, {3}));
       }},
      {"classifier_loss, another seed",
       {{4, 3}, {5, 3}},
       [](Inputs x) {
         return scale(classifier_loss(x[0], x[1], ids({4, 0, 2, 1}, {4})), 3);
       }},
  };
}

void run(const std::vector<Row>& rows) {
  for (const Row& row : rows) {
    std::mt19937_64 source(17);
    std::vector<Tensor> inputs;
    for (const Shape& shape : row.shapes)
      inputs.push_back(random_tensor(shape, row.low, row.high, source));
    try {
      const GradcheckResult result = gradcheck(row.op, inputs);
      EXPECT_TRUE(result) << row.name << ": " << result.message;
    } catch (const std::exception& error) {
      ADD_FAILURE() << row.name << ": " << error.what();
    }
  }
}

TEST(Gradcheck, Pointwise) {
  run(pointwise_rows());
}
TEST(Gradcheck, MemoryAndReductions) {
  run(memory_and_reduction_rows());
}
TEST(Gradcheck, Products) {
  run(product_rows());
}
TEST(Gradcheck, Rows) {
  run(row_rows());
}
TEST(Gradcheck, AttentionAndLosses) {
  run(attention_and_loss_rows());
}

// The checker itself: an op whose gradient is off by a factor is named with its element.
TEST(Gradcheck, NamesTheWrongElement) {
  const auto wrong = [](Inputs x) {
    return record(
        "wrong", scale(x[0].tensor(), 2), {x[0]}, [](const Tensor& g) -> Gradients { return {g}; });
  };
  const GradcheckResult result = gradcheck(wrong, {from_vector<double>({1, 2}, {2})});
  EXPECT_FALSE(result);
  EXPECT_NE(result.message.find("input 0, element (0)"), std::string::npos) << result.message;
}

}  // namespace
}  // namespace sg

// The differentiable ops. Each is core's op of the same name (core/ops.h) with its gradient beside
// it; shapes, dtypes and errors are core's. A gradient is summed over the dimensions that the op
// broadcast and has its input's dtype.
#pragma once
#include <optional>
#include <span>
#include <vector>

#include "autograd/backward.h"
#include "core/ops.h"

namespace sg {

// ---- memory (ops_memory.cpp): views where strides allow
Variable reshape(const Variable& x, const Shape& shape);
Variable transpose(const Variable& x, int d0, int d1);
Variable permute(const Variable& x, const Dims& order);
Variable slice(const Variable& x, int d, int64_t begin, int64_t end);
Variable select(const Variable& x, int d, int64_t index);
Variable expand(const Variable& x, const Shape& shape);
Variable concatenate(std::span<const Variable> parts, int d);
inline Variable concatenate(std::initializer_list<Variable> parts, int d) {
  return concatenate(std::span(parts.begin(), parts.size()), d);
}
Variable gather_rows(const Variable& x, const Tensor& indices);  // x (n,c), indices (m) → (m,c)
Variable cast(const Variable& x, DType dtype);

// ---- pointwise (ops_pointwise.cpp)
Variable add(const Variable& a, const Variable& b);
Variable sub(const Variable& a, const Variable& b);
Variable mul(const Variable& a, const Variable& b);
Variable div(const Variable& a, const Variable& b);
Variable maximum(const Variable& a, const Variable& b);  // where equal, a has the gradient
Variable minimum(const Variable& a, const Variable& b);
Variable mul_add(const Variable& a, const Variable& b, const Variable& c);  // a·b + c, rounded once
Variable where(const Tensor& condition, const Variable& yes, const Variable& no);
Variable add(const Variable& x, double scalar);
Variable scale(const Variable& x, double factor);
Variable pow(const Variable& x, double exponent);
// neg, abs, exp, log, sqrt, rsqrt, tanh, sigmoid, relu, gelu, gelu_tanh, silu.
Variable unary(PointwiseOp f, const Variable& x);
inline Variable exp(const Variable& x) {
  return unary(PointwiseOp::exp, x);
}
inline Variable log(const Variable& x) {
  return unary(PointwiseOp::log, x);
}
inline Variable sqrt(const Variable& x) {
  return unary(PointwiseOp::sqrt, x);
}
inline Variable tanh(const Variable& x) {
  return unary(PointwiseOp::tanh, x);
}
inline Variable sigmoid(const Variable& x) {
  return unary(PointwiseOp::sigmoid, x);
}
inline Variable relu(const Variable& x) {
  return unary(PointwiseOp::relu, x);
}
inline Variable gelu(const Variable& x) {
  return unary(PointwiseOp::gelu, x);
}
inline Variable gelu_tanh(const Variable& x) {
  return unary(PointwiseOp::gelu_tanh, x);
}
inline Variable silu(const Variable& x) {
  return unary(PointwiseOp::silu, x);
}
Variable silu_gate(const Variable& gate, const Variable& x);  // silu(gate) · x
inline Variable operator+(const Variable& a, const Variable& b) {
  return add(a, b);
}
inline Variable operator-(const Variable& a, const Variable& b) {
  return sub(a, b);
}
inline Variable operator*(const Variable& a, const Variable& b) {
  return mul(a, b);
}
inline Variable operator/(const Variable& a, const Variable& b) {
  return div(a, b);
}
inline Variable operator*(const Variable& x, double factor) {
  return scale(x, factor);
}
inline Variable operator*(double factor, const Variable& x) {
  return scale(x, factor);
}
inline Variable operator-(const Variable& x) {
  return unary(PointwiseOp::neg, x);
}

// ---- reductions (ops_reduce.cpp): over `dims` (all when empty)
Variable sum(const Variable& x, const Dims& dims = {}, bool keep = false);
Variable mean(const Variable& x, const Dims& dims = {}, bool keep = false);
Variable max(const Variable& x,
             const Dims& dims = {},
             bool keep = false);  // equal ones share the gradient
Variable min(const Variable& x, const Dims& dims = {}, bool keep = false);

// ---- products (ops_matmul.cpp)
Variable matmul(const Variable& a, const Variable& b);
// x (…,in) · weight (out,in)ᵀ + bias (out) → (…,out); bias may be undefined.
Variable linear(const Variable& x, const Variable& weight, const Variable& bias = {});
// f(linear(x, weight, bias)), the bias gradient taken along with f's. f: gelu, gelu_tanh, silu,
// relu.
Variable linear_activation(PointwiseOp f,
                           const Variable& x,
                           const Variable& weight,
                           const Variable& bias = {});

// ---- rows (ops_nn.cpp)
Variable softmax(const Variable& x);
Variable layernorm(const Variable& x,
                   const Variable& gain,
                   const Variable& bias,
                   float eps);  // bias may be undefined
Variable rmsnorm(const Variable& x, const Variable& gain, float eps);
struct NormedSum {
  Variable y, sum;  // sum = x + residual, y its norm; residual undefined: x
};
NormedSum layernorm(const Variable& x,
                    const Variable& residual,
                    const Variable& gain,
                    const Variable& bias,
                    float eps);
NormedSum rmsnorm(const Variable& x, const Variable& residual, const Variable& gain, float eps);
Variable embedding(const Variable& table, const Tensor& ids);  // table (v,c), ids (…) → (…,c)
Variable dropout(const Variable& x, float probability, const RandomKey& key);
// x (b,t,h,d), positions (t)
Variable rope(const Variable& x, const Tensor& positions, const RopeOptions& options);

// ---- attention (ops_attention.cpp)
// q (b,h,t,d), k, v (b,hk,s,d) → (b,h,t,d), seen through a dense (b,t,h,d).
Variable attention(const Variable& q,
                   const Variable& k,
                   const Variable& v,
                   const AttentionParameters& parameters);
// qkv (b,t,3c): queries, keys and values of `heads` heads side by side → (b,t,c), heads merged. One
// gradient buffer.
Variable attention_qkv(const Variable& qkv, int64_t heads, const AttentionParameters& parameters);

// ---- loss (ops_loss.cpp): the mean over the rows whose target isn't −1 (0 where all are), f32
// (f64 for f64)
Variable cross_entropy(const Variable& logits,
                       const Tensor& targets);  // logits (…,v), targets (…) i32|i64
// cross_entropy(x · weightᵀ, targets) by chunks of rows, so that no logits are kept: x (…,c),
// weight (v,c). The gradients are computed with the loss, for the incoming gradient that
// expected_seed() foretells; another one costs a multiplication.
Variable classifier_loss(const Variable& x, const Variable& weight, const Tensor& targets);

// What backward will be seeded with, where it's known beforehand (the loss scale over the number of
// micro-steps); 1 otherwise. An ExpectedSeed also says that the pass to come is over what is
// recorded while it lives, so gradients may be made in the leaves' gradient buffers at once.
float expected_seed();
std::optional<float> foretold_seed();  // none where it isn't known
class ExpectedSeed {
 public:
  explicit ExpectedSeed(std::optional<float> seed);
  ~ExpectedSeed();
  ExpectedSeed(const ExpectedSeed&) = delete;
  ExpectedSeed& operator=(const ExpectedSeed&) = delete;

 private:
  std::optional<float> previous_;
};

}  // namespace sg

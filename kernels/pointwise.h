// Pointwise ops: one list, one functor each, for host and device.
//
// A functor is a template over V: a CPU vector of f32, a plain float or double, or, for ops that
// supports() names, an integer or bool. It calls exp, log, tanh, erf, sqrt, fma, max, min, select
// unqualified: element.h has them for plain types, kernels/cpu/vec.h for vectors.
#pragma once
#include <cstdint>

#include "kernels/dtype.h"
#include "kernels/element.h"

namespace sg {

// X(name, inputs): the single list that the enum, the names and both backends' dispatch are made
// from. Inputs in order: relu_backward, gelu_backward, gelu_tanh_backward and silu_backward take
// (x, dy); tanh_backward and sigmoid_backward take (y, dy); mul_add is a·b + c, rounded once; where
// is (condition, yes, no); silu_gate is silu(a)·b, silu_gate_backward its gradient by a of (a, b,
// dy).
// clang-format off
#define SG_POINTWISE_OPS(X)                                                                     \
  X(add, 2) X(sub, 2) X(mul, 2) X(div, 2) X(maximum, 2) X(minimum, 2)                           \
  X(add_scalar, 1) X(mul_scalar, 1) X(pow_scalar, 1)                                            \
  X(neg, 1) X(abs, 1) X(exp, 1) X(log, 1) X(sqrt, 1) X(rsqrt, 1) X(tanh, 1) X(sigmoid, 1)       \
  X(relu, 1) X(gelu, 1) X(gelu_tanh, 1) X(silu, 1)                                              \
  X(relu_backward, 2) X(gelu_backward, 2) X(gelu_tanh_backward, 2) X(silu_backward, 2)          \
  X(tanh_backward, 2) X(sigmoid_backward, 2)                                                    \
  X(mul_add, 3) X(less, 2) X(equal, 2) X(where, 3)                                             \
  X(silu_gate, 2) X(silu_gate_backward, 3)
// clang-format on

enum class PointwiseOp : uint8_t {
#define SG_ENUMERATOR(name, inputs) name,
  SG_POINTWISE_OPS(SG_ENUMERATOR)
#undef SG_ENUMERATOR
};

constexpr const char* name_of(PointwiseOp op) {
#define SG_NAME(name, inputs) #name,
  constexpr const char* names[] = {SG_POINTWISE_OPS(SG_NAME)};
#undef SG_NAME
  return names[static_cast<int>(op)];
}
constexpr int inputs_of(PointwiseOp op) {
#define SG_INPUTS(name, inputs) inputs,
  constexpr int counts[] = {SG_POINTWISE_OPS(SG_INPUTS)};
#undef SG_INPUTS
  return counts[static_cast<int>(op)];
}

// Floats have every op; integers and booleans those that are exact in them (on booleans maximum is
// "or", minimum "and").
constexpr bool supports(PointwiseOp op, DType t) {
  using enum PointwiseOp;
  if (is_float(t))
    return true;
  const bool logical = op == maximum || op == minimum || op == less || op == equal || op == where;
  if (t == DType::boolean)
    return logical;
  return logical || op == add || op == sub || op == mul || op == add_scalar || op == mul_scalar ||
         op == neg || op == abs || op == mul_add;
}
// Comparisons give booleans, whatever they compare.
constexpr bool gives_boolean(PointwiseOp op) {
  return op == PointwiseOp::less || op == PointwiseOp::equal;
}
// The functor's second argument is the call's scalar.
constexpr bool has_scalar(PointwiseOp op) {
  return op == PointwiseOp::add_scalar || op == PointwiseOp::mul_scalar ||
         op == PointwiseOp::pow_scalar;
}

namespace element {

// The functor of an op: f(inputs…), or f(input, scalar) for the three ops with a scalar.
template <PointwiseOp>
struct Functor;

#define SG_UNARY(name, expression)      \
  template <>                           \
  struct Functor<PointwiseOp::name> {   \
    template <class V>                  \
    SG_INLINE V operator()(V x) const { \
      return V(expression);             \
    }                                   \
  };
#define SG_BINARY(name, expression)             \
  template <>                                   \
  struct Functor<PointwiseOp::name> {           \
    template <class V>                          \
    SG_INLINE auto operator()(V a, V b) const { \
      return expression;                        \
    }                                           \
  };

// NaN in either operand gives NaN.
SG_BINARY(maximum, select(a != a, a, max(a, b)))
SG_BINARY(minimum, select(a != a, a, min(a, b)))
SG_BINARY(add, V(a + b))
SG_BINARY(sub, V(a - b))
SG_BINARY(mul, V(a* b))
SG_BINARY(div, V(a / b))
SG_BINARY(less, a < b)
SG_BINARY(equal, a == b)

SG_BINARY(add_scalar, V(a + b))
SG_BINARY(mul_scalar, V(a* b))
SG_BINARY(pow_scalar, pow(a, b))

SG_UNARY(neg, -x)
SG_UNARY(abs, abs(x))
SG_UNARY(exp, exp(x))
SG_UNARY(log, log(x))
SG_UNARY(sqrt, sqrt(x))
SG_UNARY(rsqrt, V(1) / sqrt(x))
SG_UNARY(tanh, tanh(x))

// ---- activations and their derivatives ----
template <class V>
SG_INLINE V sigmoid(V x) {
  return V(1) / (V(1) + exp(-x));
}

// x·Φ(x) by erf.
template <class V>
SG_INLINE V normal_cdf(V x) {
  return fma(V(0.5), erf(x * V(0.70710678118654752)), V(0.5));
}
template <class V>
SG_INLINE V gelu_slope(V x) {
  const V density = V(0.39894228040143268) * exp(V(-0.5) * x * x);
  return fma(x, density, normal_cdf(x));
}

// 0.5·x·(1 + tanh u) with u = √(2/π)·(x + 0.044715·x³), written as x·sigmoid(2u).
template <class V>
SG_INLINE V gelu_gate(V x) {
  const V twice_u = x * fma(V(0.071354816272600257), x * x, V(1.5957691216057308));
  return sigmoid(twice_u);
}
template <class V>
SG_INLINE V gelu_tanh_slope(V x) {
  const V gate = gelu_gate(x);
  const V twice_du = fma(V(0.21406444881780077), x * x, V(1.5957691216057308));
  return fma(x * twice_du, gate * (V(1) - gate), gate);
}

template <class V>
SG_INLINE V silu_slope(V x) {
  const V gate = sigmoid(x);
  return gate * fma(x, V(1) - gate, V(1));
}

SG_UNARY(sigmoid, sigmoid(x))
SG_UNARY(relu, select(x != x, x, max(x, V(0))))
SG_UNARY(gelu, x* normal_cdf(x))
SG_UNARY(gelu_tanh, x* gelu_gate(x))
SG_UNARY(silu, x* sigmoid(x))
SG_BINARY(relu_backward, select(V(0) < a, b, V(0)))
SG_BINARY(gelu_backward, gelu_slope(a) * b)
SG_BINARY(gelu_tanh_backward, gelu_tanh_slope(a) * b)
SG_BINARY(silu_backward, silu_slope(a) * b)
SG_BINARY(silu_gate, V(a* sigmoid(a) * b))
SG_BINARY(tanh_backward, fma(-a, a, V(1)) * b)
SG_BINARY(sigmoid_backward, a*(V(1) - a) * b)
#undef SG_UNARY
#undef SG_BINARY

template <>
struct Functor<PointwiseOp::mul_add> {
  template <class V>
  SG_INLINE V operator()(V a, V b, V c) const {
    return fma(a, b, c);
  }
};
template <>
struct Functor<PointwiseOp::silu_gate_backward> {
  template <class V>
  SG_INLINE V operator()(V a, V b, V dy) const {
    return silu_slope(a) * b * dy;
  }
};
template <>
struct Functor<PointwiseOp::where> {
  template <class Condition, class V>
  SG_INLINE V operator()(Condition condition, V yes, V no) const {
    return select(condition, yes, no);
  }
};

}  // namespace element
}  // namespace sg

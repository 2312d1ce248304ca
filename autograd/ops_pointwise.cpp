#include "autograd/graph.h"
#include "autograd/ops.h"
#include "autograd/target.h"

namespace sg {
namespace {

using Op = PointwiseOp;

Tensor masked(const Tensor& mask, const Tensor& yes, const Tensor& no) {
  return pointwise(Op::where, {mask, yes, no});
}

Tensor zero(const Tensor& like) {
  Tensor out = empty({}, like.dtype(), like.device());
  fill_(out, 0);
  return out;
}

// maximum and minimum: the side whose value came through has the gradient.
Variable choice(PointwiseOp f, const Variable& a, const Variable& b) {
  check_defined(name_of(f), {{"input 1", &a}, {"input 2", &b}});
  return record(name_of(f),
                pointwise(f, {a.tensor(), b.tensor()}),
                {a, b},
                [f, a = Saved(a), b = Saved(b)](const Tensor& g) -> Gradients {
                  const Tensor none = zero(g);
                  const Tensor b_won = f == Op::maximum
                                           ? pointwise(Op::less, {a.tensor(), b.tensor()})
                                           : pointwise(Op::less, {b.tensor(), a.tensor()});
                  return {Target(a).sum_of([&] { return masked(b_won, none, g); }),
                          Target(b).sum_of([&] { return masked(b_won, g, none); })};
                });
}

Tensor sign(const Tensor& x) {
  const Tensor none = zero(x);
  return sub(cast(pointwise(Op::less, {none, x}), x.dtype()),
             cast(pointwise(Op::less, {x, none}), x.dtype()));
}

// f'(x)·g, by x or by y = f(x).
Tensor slope(PointwiseOp f, const Tensor& x, const Tensor& y, const Tensor& g) {
  switch (f) {
    case Op::neg: return pointwise(Op::neg, {g});
    case Op::abs: return mul(sign(x), g);
    case Op::exp: return mul(y, g);
    case Op::log: return div(g, x);
    case Op::sqrt: return div(scale(g, 0.5), y);
    case Op::rsqrt: return scale(mul(g, pointwise(Op::pow_scalar, {y}, 3)), -0.5);
    case Op::tanh: return pointwise(Op::tanh_backward, {y, g});
    case Op::sigmoid: return pointwise(Op::sigmoid_backward, {y, g});
    case Op::relu: return pointwise(Op::relu_backward, {x, g});
    case Op::gelu: return pointwise(Op::gelu_backward, {x, g});
    case Op::gelu_tanh: return pointwise(Op::gelu_tanh_backward, {x, g});
    case Op::silu: return pointwise(Op::silu_backward, {x, g});
    default: throw Bug(fmt::format("unary: {} has no gradient", name_of(f)));
  }
}

bool needs_result(PointwiseOp f) {
  return f == Op::exp || f == Op::sqrt || f == Op::rsqrt || f == Op::tanh || f == Op::sigmoid;
}

}  // namespace

Variable add(const Variable& a, const Variable& b) {
  check_defined("add", {{"input 1", &a}, {"input 2", &b}});
  return record("add",
                add(a.tensor(), b.tensor()),
                {a, b},
                [a = Target(a), b = Target(b)](const Tensor& g) -> Gradients {
                  return {a.sum(g), b.sum(g)};
                });
}

Variable sub(const Variable& a, const Variable& b) {
  check_defined("sub", {{"input 1", &a}, {"input 2", &b}});
  return record("sub",
                sub(a.tensor(), b.tensor()),
                {a, b},
                [a = Target(a), b = Target(b)](const Tensor& g) -> Gradients {
                  return {a.sum(g), b.sum_of([&] { return pointwise(Op::neg, {g}); })};
                });
}

Variable mul(const Variable& a, const Variable& b) {
  check_defined("mul", {{"input 1", &a}, {"input 2", &b}});
  const Saved left(a), right(b);
  Variable y = record(
      "mul", mul(a.tensor(), b.tensor()), {a, b}, [left, right](const Tensor& g) -> Gradients {
        return {Target(left).sum_of([&] { return mul(g, right.tensor()); }),
                Target(right).sum_of([&] { return mul(g, left.tensor()); })};
      });
  set_remake(y, [left, right] { return mul(left.tensor(), right.tensor()); });
  return y;
}

Variable div(const Variable& a, const Variable& b) {
  check_defined("div", {{"input 1", &a}, {"input 2", &b}});
  Tensor y = div(a.tensor(), b.tensor());
  return record(
      "div", y, {a, b}, [a = Target(a), b = Saved(b), y = Saved(y)](const Tensor& g) -> Gradients {
        const Tensor by_b = div(g, b.tensor());
        return {a.sum(by_b),
                Target(b).sum_of([&] { return pointwise(Op::neg, {mul(by_b, y.tensor())}); })};
      });
}

Variable maximum(const Variable& a, const Variable& b) {
  return choice(Op::maximum, a, b);
}
Variable minimum(const Variable& a, const Variable& b) {
  return choice(Op::minimum, a, b);
}

Variable mul_add(const Variable& a, const Variable& b, const Variable& c) {
  check_defined("mul_add", {{"input 1", &a}, {"input 2", &b}, {"input 3", &c}});
  return record("mul_add",
                pointwise(Op::mul_add, {a.tensor(), b.tensor(), c.tensor()}),
                {a, b, c},
                [a = Saved(a), b = Saved(b), c = Target(c)](const Tensor& g) -> Gradients {
                  return {Target(a).sum_of([&] { return mul(g, b.tensor()); }),
                          Target(b).sum_of([&] { return mul(g, a.tensor()); }),
                          c.sum(g)};
                });
}

Variable silu_gate(const Variable& gate, const Variable& x) {
  check_defined("silu_gate", {{"the gate", &gate}, {"x", &x}});
  const Saved g_in(gate), x_in(x);
  Variable y = record(
      "silu_gate",
      pointwise(Op::silu_gate, {gate.tensor(), x.tensor()}),
      {gate, x},
      [g_in, x_in](const Tensor& g) -> Gradients {
        return {Target(g_in).sum_of([&] {
                  return pointwise(Op::silu_gate_backward, {g_in.tensor(), x_in.tensor(), g});
                }),
                Target(x_in).sum_of([&] {
                  return pointwise(Op::silu_gate, {g_in.tensor(), g});
                })};
      });
  set_remake(y, [g_in, x_in] { return pointwise(Op::silu_gate, {g_in.tensor(), x_in.tensor()}); });
  return y;
}

Variable where(const Tensor& condition, const Variable& yes, const Variable& no) {
  check_defined("where", {{"input 2", &yes}, {"input 3", &no}});
  return record("where",
                masked(condition, yes.tensor(), no.tensor()),
                {yes, no},
                [condition = Saved(condition), yes = Target(yes), no = Target(no)](
                    const Tensor& g) -> Gradients {
                  const Tensor none = zero(g);
                  return {yes.sum_of([&] { return masked(condition.tensor(), g, none); }),
                          no.sum_of([&] { return masked(condition.tensor(), none, g); })};
                });
}

Variable add(const Variable& x, double scalar) {
  check_defined("add_scalar", {{"the input", &x}});
  return record("add_scalar",
                pointwise(Op::add_scalar, {x.tensor()}, scalar),
                {x},
                [](const Tensor& g) -> Gradients { return {g}; });
}

Variable scale(const Variable& x, double factor) {
  check_defined("scale", {{"the input", &x}});
  return record("scale", scale(x.tensor(), factor), {x}, [factor](const Tensor& g) -> Gradients {
    return {scale(g, factor)};
  });
}

Variable pow(const Variable& x, double exponent) {
  check_defined("pow", {{"the input", &x}});
  return record(
      "pow",
      pointwise(Op::pow_scalar, {x.tensor()}, exponent),
      {x},
      [x = Saved(x), exponent](const Tensor& g) -> Gradients {
        if (exponent == 0)
          return {zeros_like(g)};  // of a constant, at 0 too
        if (exponent == 1)
          return {g};
        return {scale(mul(g, pointwise(Op::pow_scalar, {x.tensor()}, exponent - 1)), exponent)};
      });
}

Variable unary(PointwiseOp f, const Variable& x) {
  check_defined(name_of(f), {{"the input", &x}});
  check(inputs_of(f) == 1 && f != Op::add_scalar && f != Op::mul_scalar && f != Op::pow_scalar,
        "unary: {} isn't an op of one input",
        name_of(f));
  Tensor y = pointwise(f, {x.tensor()});
  const bool by_result = needs_result(f);
  Saved kept = by_result ? Saved(y) : f == Op::neg ? Saved() : Saved(x);
  Variable result =
      record(name_of(f), std::move(y), {x}, [f, by_result, kept](const Tensor& g) -> Gradients {
        return {by_result ? slope(f, {}, kept.tensor(), g) : slope(f, kept.tensor(), {}, g)};
      });
  if (kept.defined() && !by_result)
    set_remake(result, [f, kept] { return pointwise(f, {kept.tensor()}); });
  return result;
}

}  // namespace sg

#include <algorithm>

#include "core/launch.h"
#include "core/ops.h"

namespace sg {
namespace {

// Integers join floats; f16 and bf16 meet at f32; otherwise the wider of a kind. boolean < u8 < i32 < i64.
DType promote(DType a, DType b) {
  if (a == b) return a;
  if (is_float(a) != is_float(b)) return is_float(a) ? a : b;
  if (is_float(a)) return a == DType::f64 || b == DType::f64 ? DType::f64 : DType::f32;
  const auto order = [](DType t) { return t == DType::boolean ? 0 : t == DType::u8 ? 1 : t == DType::i32 ? 2 : 3; };
  return order(a) > order(b) ? a : b;
}

bool compares(PointwiseOp op) { return op == PointwiseOp::less || op == PointwiseOp::equal; }

// The inputs in one dtype and one shape (strides 0 where broadcast); `where` keeps its boolean first input.
struct Prepared {
  Tensor tensors[3];
  View views[3];
  Shape shape;
  DType dtype = DType::f32;
};

void prepare(PointwiseOp op, std::initializer_list<Tensor> inputs, Prepared& p) {
  const char* name = name_of(op);
  check(static_cast<int>(inputs.size()) == inputs_of(op), "{}: takes {} inputs, got {}", name, inputs_of(op),
        inputs.size());
  const size_t first = op == PointwiseOp::where ? 1 : 0;
  const Tensor* in = inputs.begin();
  check(first == 0 || in[0].dtype() == DType::boolean, "where: the condition is {}, not bool", name_of(in[0].dtype()));
  p.dtype = in[first].dtype();
  p.shape = in[0].shape();
  for (size_t i = 1; i < inputs.size(); ++i) {
    detail::check_device(name, {in, in + i});
    if (i > first) p.dtype = promote(p.dtype, in[i].dtype());
    if (in[i].shape() != p.shape) p.shape = broadcast(p.shape, in[i].shape(), name);
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    p.tensors[i] = i >= first ? cast(in[i], p.dtype) : in[i];
    if (p.tensors[i].shape() != p.shape) p.tensors[i] = p.tensors[i].expand(p.shape);
  }
}

void run(PointwiseOp op, Prepared& p, size_t inputs, const Tensor& out, double scalar) {
  detail::launch(name_of(op), out.device(), [&](const KernelTable& k, StreamHandle s) {
    for (size_t i = 0; i < inputs; ++i) p.views[i] = p.tensors[i].view();
    detail::require(k.pointwise, name_of(op), k, p.dtype)(op, p.views, out.view(), scalar, s);
  });
}

}  // namespace

Tensor pointwise(PointwiseOp op, std::initializer_list<Tensor> inputs, double scalar) {
  Prepared p;
  prepare(op, inputs, p);
  Tensor out = empty(p.shape, compares(op) ? DType::boolean : p.dtype, p.tensors[0].device());
  run(op, p, inputs.size(), out, scalar);
  return out;
}

void pointwise_(PointwiseOp op, const Tensor& out, std::initializer_list<Tensor> inputs, double scalar) {
  Prepared p;
  prepare(op, inputs, p);
  const DType expected = compares(op) ? DType::boolean : p.dtype;
  check(out.shape() == p.shape && out.dtype() == expected, "{}: the result is {} {}, the output {} {}", name_of(op),
        name_of(expected), p.shape, name_of(out.dtype()), out.shape());
  run(op, p, inputs.size(), out, scalar);
  out.bump_version();
}

void accumulate_(const Tensor& acc, const Tensor& x) {
  check(acc.shape() == x.shape(), "accumulate: shapes differ: {} += {}", acc.shape(), x.shape());
  check(acc.dtype() == DType::f32 || acc.dtype() == x.dtype(), "accumulate: {} += {}", name_of(acc.dtype()),
        name_of(x.dtype()));
  check(acc.contiguous(), "accumulate: the accumulator must be dense: strides {}", acc.strides());
  const Tensor dense = contiguous(x);
  detail::launch("accumulate", acc.device(), [&](const KernelTable& k, StreamHandle s) {
    detail::require(k.accumulate, "accumulate", k, x.dtype())(dense.view(), acc.view(), s);
  });
  acc.bump_version();
}

}  // namespace sg

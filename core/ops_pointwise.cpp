#include <algorithm>

#include "core/launch.h"
#include "core/ops.h"

namespace sg {
namespace {

// Integers join floats; f16 and bf16 meet at f32; otherwise the wider of a kind. boolean < u8 < i32
// < i64.
DType promote(DType a, DType b) {
  if (a == b)
    return a;
  if (is_float(a) != is_float(b))
    return is_float(a) ? a : b;
  if (is_float(a))
    return a == DType::f64 || b == DType::f64 ? DType::f64 : DType::f32;
  const auto order = [](DType t) {
    return t == DType::boolean ? 0 : t == DType::u8 ? 1 : t == DType::i32 ? 2 : 3;
  };
  return order(a) > order(b) ? a : b;
}

// The inputs in one dtype and one shape (strides 0 where broadcast); `where` keeps its boolean
// first input.
struct Prepared {
  Tensor tensors[3];
  View views[3];
  Shape shape;
  DType dtype = DType::f32;
  decltype(KernelTable::pointwise.f32) kernel = nullptr;
};

constexpr const char* input_names[] = {"input 1", "input 2", "input 3"};

void prepare(PointwiseOp op, std::initializer_list<Tensor> inputs, Prepared& p) {
  const char* name = name_of(op);
  check(static_cast<int>(inputs.size()) == inputs_of(op),
        "{}: takes {} inputs, got {}",
        name,
        inputs_of(op),
        inputs.size());
  const size_t first = op == PointwiseOp::where ? 1 : 0;
  const Tensor* in = inputs.begin();
  for (size_t i = 0; i < inputs.size(); ++i)
    detail::check_arguments(name, {{"input 1", in}, {input_names[i], in + i}});
  check(first == 0 || in[0].dtype() == DType::boolean,
        "where: the condition is {}, not bool",
        name_of(in[0].dtype()));
  p.dtype = in[first].dtype();
  p.shape = in[0].shape();
  for (size_t i = 1; i < inputs.size(); ++i) {
    if (i > first)
      p.dtype = promote(p.dtype, in[i].dtype());
    if (in[i].shape() != p.shape)
      p.shape = broadcast(p.shape, in[i].shape(), name);
  }
  p.kernel = detail::kernel(name, in[0].device(), &KernelTable::pointwise, p.dtype);
  check(supports(op, p.dtype),
        "{}: no {} kernel for {}",
        name,
        kernel_table(in[0].device()).name,
        name_of(p.dtype));
  for (size_t i = 0; i < inputs.size(); ++i) {
    p.tensors[i] = i >= first ? cast(in[i], p.dtype) : in[i];
    if (p.tensors[i].shape() != p.shape)
      p.tensors[i] = p.tensors[i].expand(p.shape);
  }
}

void run(PointwiseOp op, Prepared& p, size_t inputs, const Tensor& out, double scalar) {
  if (out.numel() == 0)
    return;
  detail::launch(name_of(op), out.device(), [&](StreamHandle s) {
    for (size_t i = 0; i < inputs; ++i)
      p.views[i] = p.tensors[i].view();
    p.kernel(op, p.views, out.view(), scalar, s);
  });
}

}  // namespace

Tensor pointwise(PointwiseOp op, std::initializer_list<Tensor> inputs, double scalar) {
  Prepared p;
  prepare(op, inputs, p);
  Tensor out = empty(p.shape, gives_boolean(op) ? DType::boolean : p.dtype, p.tensors[0].device());
  run(op, p, inputs.size(), out, scalar);
  return out;
}

void pointwise_(PointwiseOp op,
                const Tensor& out,
                std::initializer_list<Tensor> inputs,
                double scalar) {
  Prepared p;
  prepare(op, inputs, p);
  detail::check_arguments(name_of(op), {{"input 1", inputs.begin()}, {"the output", &out}});
  const DType expected = gives_boolean(op) ? DType::boolean : p.dtype;
  check(out.shape() == p.shape && out.dtype() == expected,
        "{}: the result is {} {}, the output {} {}",
        name_of(op),
        name_of(expected),
        p.shape,
        name_of(out.dtype()),
        out.shape());
  detail::check_writable(name_of(op), out);
  for (Tensor& input :
       p.tensors) {  // an input may be the output; one that is a part of it is read apart
    const bool same =
        input.defined() && input.offset() == out.offset() && input.strides() == out.strides();
    if (input.defined() && !same && detail::overlap(input, out))
      input = clone(input);
  }
  run(op, p, inputs.size(), out, scalar);
  out.bump_version();
}

void accumulate_(const Tensor& acc, const Tensor& x) {
  detail::check_arguments("accumulate", {{"the accumulator", &acc}, {"x", &x}});
  check(acc.shape() == x.shape(), "accumulate: shapes differ: {} += {}", acc.shape(), x.shape());
  check(acc.dtype() == x.dtype() || (acc.dtype() == DType::f32 && is_16bit(x.dtype())),
        "accumulate: {} += {}",
        name_of(acc.dtype()),
        name_of(x.dtype()));
  check(acc.contiguous(), "accumulate: the accumulator must be dense: strides {}", acc.strides());
  const auto add = detail::kernel("accumulate", acc.device(), &KernelTable::accumulate, x.dtype());
  const bool same = acc.offset() == x.offset() && x.contiguous();
  const Tensor dense = !same && detail::overlap(acc, x) ? clone(x) : contiguous(x);
  if (x.numel() > 0) {
    detail::launch(
        "accumulate", acc.device(), [&](StreamHandle s) { add(dense.view(), acc.view(), s); });
  }
  acc.bump_version();
}

}  // namespace sg

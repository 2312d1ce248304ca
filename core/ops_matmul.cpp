#include "core/launch.h"
#include "core/ops.h"
#include "core/products.h"

namespace sg {
namespace {

// Vectors along dimension d are dense and lie side by side, none of them on another (as a
// broadcast's do).
bool dense_along(const Tensor& x, int d, int other) {
  const bool dense = x.strides()[d] == 1 || x.size(d) == 1;
  return dense && (x.size(other) == 1 || x.strides()[other] >= x.size(d));
}

// A matrix with dense rows or dense columns; anything else is copied.
Tensor dense_matrix(const Tensor& x) {
  return dense_along(x, -1, -2) || dense_along(x, -2, -1) ? x : contiguous(x);
}

Shape leading(const Shape& shape) {
  Shape out = shape;
  out.erase(-1);
  out.erase(-1);
  return out;
}

Tensor with_leading(const Tensor& x, const Shape& lead) {
  Shape shape = lead;
  shape.push_back(x.size(-2));
  shape.push_back(x.size(-1));
  return x.shape() == shape ? x : x.expand(shape);
}

Shape product_shape(const Tensor& a, const Tensor& b) {
  detail::check_arguments("matmul", {{"a", &a}, {"b", &b}});
  check(
      a.rank() >= 2 && b.rank() >= 2, "matmul: matrices are needed: {} × {}", a.shape(), b.shape());
  check(a.size(-1) == b.size(-2), "matmul: inner sizes differ: {} × {}", a.shape(), b.shape());
  detail::check_same_dtype("matmul", {&a, &b});
  Shape shape = broadcast(leading(a.shape()), leading(b.shape()), "matmul");
  shape.push_back(a.size(-2));
  shape.push_back(b.size(-1));
  return shape;
}

// a (…,m,k), b (…,k,n) as they lie in memory.
void record(const Tensor& a, const Tensor& b, const Shape& lead) {
  if (!recording_products())
    return;
  record_product({.op = "matmul",
                  .batch = numel(lead),
                  .m = a.size(-2),
                  .k = a.size(-1),
                  .n = b.size(-1),
                  .transpose_a = !dense_along(a, -1, -2),
                  .transpose_b = !dense_along(b, -1, -2)});
}

// Sums of no terms: zeros, the bias, or what was there.
void empty_product(const Tensor& out, const Tensor& bias, bool accumulate) {
  if (bias.defined())
    copy_(out, bias);
  else if (!accumulate)
    fill_(out, 0);
}

void product(const Tensor& out, const Tensor& a, const Tensor& b, const MatmulOptions& options) {
  const auto multiply = detail::kernel("matmul", out.device(), &KernelTable::matmul, out.dtype());
  const Shape lead = leading(out.shape());
  // One weight for all of a batch: the batch's rows are the rows of one product.
  if (lead.rank() > 0 && b.rank() == 2 && a.contiguous() && out.contiguous()) {
    return product(out.reshape(rows_of(out.shape())), a.reshape(rows_of(a.shape())), b, options);
  }
  const Tensor left = with_leading(dense_matrix(a), lead),
               right = with_leading(dense_matrix(b), lead);
  record(left, right, lead);
  const View av = left.view(), bv = right.view(), ov = out.view();
  const detail::Scratch scratch(
      out.device(),
      detail::workspace_bytes(
          kernel_table(out.device()).matmul_workspace, av, bv, ov, threads(out.device())));
  detail::launch(
      "matmul", out.device(), [&](StreamHandle s) { multiply(av, bv, ov, options, scratch, s); });
}

}  // namespace

Tensor matmul(const Tensor& a, const Tensor& b, const Tensor& bias) {
  const Shape shape = product_shape(a, b);
  detail::check_arguments("matmul", {{"a", &a}}, {{"the bias", &bias}});
  Tensor out = empty(shape, a.dtype(), a.device());
  MatmulOptions options;
  View bias_view;
  if (bias.defined()) {
    check(bias.shape() == Shape{b.size(-1)} && bias.dtype() == a.dtype() && bias.contiguous(),
          "matmul: bias {} {} for {} × {} {}",
          name_of(bias.dtype()),
          bias.shape(),
          a.shape(),
          b.shape(),
          name_of(a.dtype()));
    bias_view = bias.view();
    options.bias = &bias_view;
  }
  if (a.size(-1) == 0)
    empty_product(out, bias, false);
  else
    product(out, a, b, options);
  return out;
}

void matmul_(const Tensor& out, const Tensor& a, const Tensor& b, bool accumulate) {
  const Shape shape = product_shape(a, b);
  detail::check_arguments("matmul", {{"the output", &out}, {"a", &a}});
  check(out.shape() == shape && out.dtype() == a.dtype() && out.contiguous(),
        "matmul: {} × {} gives {} {}, the output is {} {} strides {}",
        a.shape(),
        b.shape(),
        name_of(a.dtype()),
        shape,
        name_of(out.dtype()),
        out.shape(),
        out.strides());
  const auto apart = [&](const Tensor& x) { return detail::overlap(out, x) ? clone(x) : x; };
  if (a.size(-1) == 0)
    empty_product(out, {}, accumulate);
  else
    product(out, apart(a), apart(b), {.accumulate = accumulate});
  out.bump_version();
}

}  // namespace sg

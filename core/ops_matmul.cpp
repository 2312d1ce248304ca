#include "core/launch.h"
#include "core/ops.h"
#include "core/products.h"

namespace sg {
namespace {

// Vectors along dimension d are dense and lie side by side, none of them on another (as a broadcast's do).
bool dense_along(const Tensor& x, int d, int other) {
  const bool dense = x.strides()[d] == 1 || x.size(d) == 1;
  return dense && (x.size(other) == 1 || x.strides()[other] >= x.size(d));
}

// A matrix with dense rows or dense columns; anything else is copied.
Tensor dense_matrix(const Tensor& x) { return dense_along(x, -1, -2) || dense_along(x, -2, -1) ? x : contiguous(x); }

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
  check(a.rank() >= 2 && b.rank() >= 2, "matmul: matrices are needed: {} × {}", a.shape(), b.shape());
  check(a.size(-1) == b.size(-2), "matmul: inner sizes differ: {} × {}", a.shape(), b.shape());
  detail::check_same_dtype("matmul", {&a, &b});
  detail::check_device("matmul", {&a, &b});
  Shape shape = broadcast(leading(a.shape()), leading(b.shape()), "matmul");
  shape.push_back(a.size(-2));
  shape.push_back(b.size(-1));
  return shape;
}

// a (…,m,k), b (…,k,n) as they lie in memory.
void record(const Tensor& a, const Tensor& b, const Shape& lead) {
  if (!recording_products()) return;
  record_product({.op = "matmul",
                  .batch = numel(lead),
                  .m = a.size(-2),
                  .k = a.size(-1),
                  .n = b.size(-1),
                  .transpose_a = !dense_along(a, -1, -2),
                  .transpose_b = !dense_along(b, -1, -2)});
}

void product(const Tensor& out, const Tensor& a, const Tensor& b, const MatmulOptions& options) {
  const Shape lead = leading(out.shape());
  // One weight for all of a batch: the batch's rows are the rows of one product.
  if (lead.rank() > 0 && b.rank() == 2 && a.contiguous() && out.contiguous()) {
    return product(out.reshape({-1, out.size(-1)}), a.reshape({-1, a.size(-1)}), b, options);
  }
  const Tensor left = with_leading(dense_matrix(a), lead), right = with_leading(dense_matrix(b), lead);
  record(left, right, lead);
  const View av = left.view(), bv = right.view(), ov = out.view();
  const detail::Scratch scratch(out.device(), detail::workspace_bytes(kernel_table(out.device()).matmul_workspace, av,
                                                                      bv, ov, threads(out.device())));
  detail::launch("matmul", out.device(), [&](const KernelTable& k, StreamHandle s) {
    detail::require(k.matmul, "matmul", k, out.dtype())(av, bv, ov, options, scratch, s);
  });
}

}  // namespace

Tensor matmul(const Tensor& a, const Tensor& b, const Tensor& bias) {
  Tensor out = empty(product_shape(a, b), a.dtype(), a.device());
  MatmulOptions options;
  View bias_view;
  if (bias.defined()) {
    check(bias.shape() == Shape{b.size(-1)} && bias.dtype() == a.dtype() && bias.contiguous(),
          "matmul: bias {} {} for {} × {} {}", name_of(bias.dtype()), bias.shape(), a.shape(), b.shape(),
          name_of(a.dtype()));
    bias_view = bias.view();
    options.bias = &bias_view;
  }
  product(out, a, b, options);
  return out;
}

void matmul_(const Tensor& out, const Tensor& a, const Tensor& b, bool accumulate) {
  const Shape shape = product_shape(a, b);
  check(out.shape() == shape && out.dtype() == a.dtype() && out.contiguous(),
        "matmul: {} × {} gives {} {}, the output is {} {} strides {}", a.shape(), b.shape(), name_of(a.dtype()), shape,
        name_of(out.dtype()), out.shape(), out.strides());
  product(out, a, b, {.accumulate = accumulate});
  out.bump_version();
}

}  // namespace sg

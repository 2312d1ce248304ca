#include "autograd/graph.h"
#include "autograd/ops.h"
#include "autograd/target.h"

namespace sg {
namespace {

Tensor rows(const Tensor& x) {
  return x.reshape(rows_of(x.shape()));
}

// a·b, computed where the gradient is wanted.
Contribution product(const Shape& shape, const Tensor& a, const Tensor& b) {
  return {shape, a.dtype(), [a, b](const Tensor& out, bool accumulate) {
            matmul_(out, a, b, accumulate);
          }};
}
// The same for a gradient (…,n) that is computed as one matrix (rows, n).
Contribution product_of_rows(const Shape& shape, const Tensor& a, const Tensor& b) {
  return {shape, a.dtype(), [a, b](const Tensor& out, bool accumulate) {
            matmul_(rows(out), a, b, accumulate);
          }};
}

bool same_leading(const Shape& a, const Shape& b) {
  return a.rank() == b.rank() && std::equal(a.begin(), a.end() - 2, b.begin());
}

// x·weightᵀ: what linear and linear_activation share. g is (…,out).
Gradients linear_backward(const Saved& x, const Saved& weight, const Tensor& g) {
  const Tensor g_rows = rows(g);
  return {x.wanted() ? product_of_rows(x.shape(), g_rows, weight.tensor()) : Contribution(),
          weight.wanted() ? product(weight.shape(), g_rows.transposed(), rows(x.tensor()))
                          : Contribution()};
}

void check_linear(const Variable& x, const Variable& weight) {
  check_defined("linear", {{"x", &x}, {"the weight", &weight}});
  check(weight.rank() == 2 && x.rank() >= 1 && x.size(-1) == weight.size(1),
        "linear: x (…,in) and weight (out,in): {} and {}",
        x.shape(),
        weight.shape());
}

Tensor product_with(const Variable& x, const Variable& weight, const Variable& bias) {
  check_linear(x, weight);
  const Tensor transposed = weight.tensor().transposed(),
               b = bias.defined() ? bias.tensor() : Tensor();
  if (x.rank() > 1)
    return matmul(x.tensor(), transposed, b);
  return matmul(x.tensor().unsqueeze(0), transposed, b).squeeze(0);
}

}  // namespace

Variable matmul(const Variable& a, const Variable& b) {
  check_defined("matmul", {{"a", &a}, {"b", &b}});
  return record(
      "matmul",
      matmul(a.tensor(), b.tensor()),
      {a, b},
      [a = Saved(a),
       b = Saved(b)](const Tensor& g) -> Gradients {  // a (…,m,k), b (…,k,n), g (…,m,n)
        Gradients gradients(2);
        const bool one_weight = b.shape().rank() == 2;
        if (same_leading(a.shape(), b.shape()) || one_weight) {
          const Tensor left = one_weight ? rows(a.tensor()) : a.tensor(),
                       right = one_weight ? rows(g) : g;
          if (a.wanted())
            gradients[0] = product(a.shape(), g, b.tensor().transposed());
          if (b.wanted())
            gradients[1] = product(b.shape(), left.transposed(), right);
        } else {
          gradients[0] = Target(a).sum_of([&] { return matmul(g, b.tensor().transposed()); });
          gradients[1] = Target(b).sum_of([&] { return matmul(a.tensor().transposed(), g); });
        }
        return gradients;
      });
}

Variable linear(const Variable& x, const Variable& weight, const Variable& bias) {
  return record(
      "linear",
      product_with(x, weight, bias),
      {x, weight, bias},
      [x = Saved(x), weight = Saved(weight), bias = bias.requires_grad()](const Tensor& g) {
        Gradients gradients = linear_backward(x, weight, g);
        gradients.push_back(bias ? column_sum(g) : Contribution());
        return gradients;
      });
}

Variable linear_activation(PointwiseOp f,
                           const Variable& x,
                           const Variable& weight,
                           const Variable& bias) {
  const Tensor h = product_with(x, weight, bias);
  Variable y =
      record("linear_activation",
             pointwise(f, {h}),
             {x, weight, bias},
             [f, x = Saved(x), weight = Saved(weight), h = Saved(h), bias = bias.requires_grad()](
                 Tensor g) {
               auto [dh, d_bias] = activation_backward(f, h.tensor(), std::move(g), bias);
               Gradients gradients = linear_backward(x, weight, dh);
               gradients.push_back(std::move(d_bias));
               return gradients;
             });
  set_remake(y, [f, h = Saved(h)] { return pointwise(f, {h.tensor()}); });
  return y;
}

}  // namespace sg

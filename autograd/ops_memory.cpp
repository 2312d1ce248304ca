#include "autograd/ops.h"
#include "autograd/target.h"

namespace sg {
namespace {

// A tensor of zeros but for one part, which `g` fills.
Tensor embedded(const Target& whole, const Tensor& g, int d, int64_t begin, int64_t end) {
  Tensor out = empty(whole.shape, whole.dtype, g.device());
  const int64_t size = whole.shape[d];
  if (begin > 0)
    fill_(out.slice(d, 0, begin), 0);
  copy_(out.slice(d, begin, end), g);
  if (end < size)
    fill_(out.slice(d, end, size), 0);
  return out;
}

}  // namespace

Variable reshape(const Variable& x, const Shape& shape) {
  check_defined("reshape", {{"the input", &x}});
  return record(
      "reshape", x.tensor().reshape(shape), {x}, [shape = x.shape()](const Tensor& g) -> Gradients {
        return {g.reshape(shape)};
      });
}

Variable transpose(const Variable& x, int d0, int d1) {
  check_defined("transpose", {{"the input", &x}});
  return record(
      "transpose", x.tensor().transpose(d0, d1), {x}, [d0, d1](const Tensor& g) -> Gradients {
        return {g.transpose(d0, d1)};
      });
}

Variable permute(const Variable& x, const Dims& order) {
  check_defined("permute", {{"the input", &x}});
  Dims inverse = order;
  Tensor out = x.tensor().permute(order);
  for (int d = 0; d < order.rank(); ++d)
    inverse.set(static_cast<int>(order[d]), d);
  return record("permute", std::move(out), {x}, [inverse](const Tensor& g) -> Gradients {
    return {g.permute(inverse)};
  });
}

Variable slice(const Variable& x, int d, int64_t begin, int64_t end) {
  check_defined("slice", {{"the input", &x}});
  return record("slice",
                x.tensor().slice(d, begin, end),
                {x},
                [x = Target(x), d, begin, end](const Tensor& g) -> Gradients {
                  return {embedded(x, g, d, begin, end)};
                });
}

Variable select(const Variable& x, int d, int64_t index) {
  check_defined("select", {{"the input", &x}});
  const int at = x.shape().wrap(d);
  return record("select",
                x.tensor().select(d, index),
                {x},
                [x = Target(x), at, index](const Tensor& g) -> Gradients {
                  return {embedded(x, g.unsqueeze(at), at, index, index + 1)};
                });
}

Variable expand(const Variable& x, const Shape& shape) {
  check_defined("expand", {{"the input", &x}});
  return record(
      "expand", x.tensor().expand(shape), {x}, [x = Target(x)](const Tensor& g) -> Gradients {
        return {x.sum(g)};
      });
}

Variable concatenate(std::span<const Variable> parts, int d) {
  std::vector<Tensor> tensors;
  std::vector<int64_t> ends;
  for (const Variable& part : parts) {
    check_defined("concatenate", {{"a part", &part}});
    tensors.push_back(part.tensor());
    ends.push_back((ends.empty() ? 0 : ends.back()) + part.size(d));
  }
  return record("concatenate", concatenate(tensors, d), parts, [ends, d](const Tensor& g) {
    Gradients gradients;
    int64_t begin = 0;
    for (int64_t end : ends) {
      gradients.emplace_back(g.slice(d, begin, end));
      begin = end;
    }
    return gradients;
  });
}

Variable gather_rows(const Variable& x, const Tensor& indices) {
  check_defined("gather_rows", {{"x", &x}});
  return record("gather_rows",
                gather_rows(x.tensor(), indices),
                {x},
                [x = Target(x), indices = Saved(indices)](const Tensor& g) -> Gradients {
                  return {{x.shape, x.dtype, [g, indices](const Tensor& out, bool accumulate) {
                             embedding_backward_(out, indices.tensor(), g, accumulate);
                           }}};
                });
}

Variable cast(const Variable& x, DType dtype) {
  check_defined("cast", {{"the input", &x}});
  if (x.dtype() == dtype)
    return x;
  return record(
      "cast", cast(x.tensor(), dtype), {x}, [from = x.dtype()](const Tensor& g) -> Gradients {
        return {cast(g, from)};
      });
}

}  // namespace sg

#include "core/launch.h"
#include "core/ops.h"

namespace sg {
namespace {

constexpr const char* reduce_names[] = {"sum", "mean", "max", "min"};

Tensor reduce_kept(ReduceOp op, const Tensor& x, const Shape& kept) {
  const char* name = reduce_names[static_cast<int>(op)];
  const auto reduce = detail::kernel(name, x.device(), &KernelTable::reduce, x.dtype());
  const bool needs_one = op == ReduceOp::max || op == ReduceOp::min;
  check(!needs_one || x.numel() > 0 || numel(kept) == 0, "{}: no elements: {}", name, x.shape());
  Tensor out = empty(kept, x.dtype(), x.device());
  if (out.numel() > 0) {
    detail::launch(name, x.device(), [&](StreamHandle s) { reduce(op, x.view(), out.view(), s); });
  }
  return out;
}

}  // namespace

Tensor reduce(ReduceOp op, const Tensor& x, const Dims& dims, bool keep) {
  detail::check_arguments(reduce_names[static_cast<int>(op)], {{"the input", &x}});
  Shape kept = x.shape();
  if (dims.empty()) {
    for (int d = 0; d < x.rank(); ++d)
      kept.set(d, 1);
  }
  for (int64_t d : dims)
    kept.set(static_cast<int>(d), 1);
  Tensor out = reduce_kept(op, x, kept);
  if (keep)
    return out;
  if (dims.empty())
    return out.reshape({});
  Shape shape;
  for (int d = 0; d < x.rank(); ++d) {
    bool reduced = false;
    for (int64_t r : dims)
      reduced |= x.shape().wrap(static_cast<int>(r)) == d;
    if (!reduced)
      shape.push_back(x.size(d));
  }
  return out.reshape(shape);
}

Tensor sum_to(const Tensor& x, const Shape& shape) {
  detail::check_arguments("sum_to", {{"the input", &x}});
  if (x.shape() == shape)
    return x;
  check(shape.rank() <= x.rank(), "sum_to: {} to {}", x.shape(), shape);
  const int added = x.rank() - shape.rank();
  Shape kept = x.shape();
  for (int d = 0; d < x.rank(); ++d) {
    const int64_t wanted = d < added ? 1 : shape[d - added];
    check(wanted == 1 || wanted == x.size(d), "sum_to: {} to {}", x.shape(), shape);
    kept.set(d, wanted);
  }
  return reduce_kept(ReduceOp::sum, x, kept).reshape(shape);
}

Tensor argmax(const Tensor& x) {
  detail::check_arguments("argmax", {{"the input", &x}});
  const auto argmax = detail::kernel("argmax", x.device(), &KernelTable::argmax, x.dtype());
  check(x.rank() >= 1 && x.size(-1) > 0,
        "argmax: no elements along the last dimension: {}",
        x.shape());
  const Tensor rows = detail::as_rows("argmax", x);
  Tensor out = empty(detail::without_last(x.shape()), DType::i64, x.device());
  if (out.numel() == 0)
    return out;
  detail::launch(
      "argmax", x.device(), [&](StreamHandle s) { argmax(rows.view(), out.flatten().view(), s); });
  return out;
}

}  // namespace sg

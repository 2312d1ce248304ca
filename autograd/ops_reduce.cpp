#include "autograd/ops.h"
#include "autograd/target.h"

namespace sg {
namespace {

// x's shape with size 1 where it was reduced.
Shape kept_shape(const Shape& x, const Dims& dims) {
  Shape kept = x;
  for (int d = 0; d < x.rank(); ++d) {
    if (dims.empty())
      kept.set(d, 1);
  }
  for (int64_t d : dims)
    kept.set(static_cast<int>(d), 1);
  return kept;
}

Variable extremum(ReduceOp op, const char* name, const Variable& x, const Dims& dims, bool keep) {
  check_defined(name, {{"the input", &x}});
  Tensor y = reduce(op, x.tensor(), dims, keep);
  return record(name,
                y,
                {x},
                [x = Saved(x), y = Saved(y), dims, kept = kept_shape(x.shape(), dims)](
                    const Tensor& g) -> Gradients {
                  const Tensor chosen =
                      cast(pointwise(PointwiseOp::equal, {x.tensor(), y.tensor().reshape(kept)}),
                           x.dtype());
                  return {mul(chosen, div(g.reshape(kept), sum(chosen, dims, true)))};
                });
}

}  // namespace

Variable sum(const Variable& x, const Dims& dims, bool keep) {
  check_defined("sum", {{"the input", &x}});
  return record("sum",
                sum(x.tensor(), dims, keep),
                {x},
                [shape = x.shape(), kept = kept_shape(x.shape(), dims)](
                    const Tensor& g) -> Gradients { return {g.reshape(kept).expand(shape)}; });
}

Variable mean(const Variable& x, const Dims& dims, bool keep) {
  check_defined("mean", {{"the input", &x}});
  const Shape kept = kept_shape(x.shape(), dims);
  const double share = static_cast<double>(numel(kept)) / static_cast<double>(x.numel());
  return record("mean",
                mean(x.tensor(), dims, keep),
                {x},
                [shape = x.shape(), kept, share](const Tensor& g) -> Gradients {
                  return {scale(g, share).reshape(kept).expand(shape)};
                });
}

Variable max(const Variable& x, const Dims& dims, bool keep) {
  return extremum(ReduceOp::max, "max", x, dims, keep);
}
Variable min(const Variable& x, const Dims& dims, bool keep) {
  return extremum(ReduceOp::min, "min", x, dims, keep);
}

}  // namespace sg

#include "core/launch.h"
#include "core/ops.h"
#include "core/products.h"

namespace sg {
namespace {

void check_targets(const char* op, const Tensor& targets, int64_t rows, int64_t classes) {
  check(targets.shape() == Shape{rows} && targets.contiguous(),
        "{}: {} rows, targets {}",
        op,
        rows,
        targets.shape());
  detail::check_indices(op, "target", targets, classes, "leaves a row out");
}

// Logits x·weightᵀ, and for gradients dx and d_weight; x (rows, c), weight (v, c).
void record_classifier(const Tensor& x, const Tensor& weight, bool gradient) {
  if (!recording_products())
    return;
  const int64_t rows = x.size(0), c = x.size(1), v = weight.size(0);
  record_product({.op = "classifier", .m = rows, .k = c, .n = v, .transpose_b = true});
  if (!gradient)
    return;
  record_product({.op = "classifier", .m = rows, .k = v, .n = c});
  record_product({.op = "classifier", .m = v, .k = rows, .n = c, .transpose_a = true});
}

}  // namespace

Loss cross_entropy(const Tensor& logits_in, const Tensor& targets, bool gradient, float scale) {
  detail::check_arguments("cross_entropy", {{"the logits", &logits_in}, {"the targets", &targets}});
  check(logits_in.rank() == 2, "cross_entropy: (rows, v) logits are needed: {}", logits_in.shape());
  const auto loss = detail::kernel(
      "cross_entropy", logits_in.device(), &KernelTable::cross_entropy, logits_in.dtype());
  check_targets("cross_entropy", targets, logits_in.size(0), logits_in.size(1));
  const Tensor logits = contiguous(logits_in);
  Loss out;
  out.losses = empty({logits.size(0)}, detail::statistics_dtype(logits.dtype()), logits.device());
  if (gradient)
    out.d_logits = empty_like(logits);
  if (out.losses.numel() == 0)
    return out;
  detail::launch("cross_entropy", logits.device(), [&](StreamHandle s) {
    loss(logits.view(),
         targets.view(),
         out.losses.view(),
         detail::view_or_null(out.d_logits),
         scale,
         s);
  });
  return out;
}

namespace {

void check_classifier(const Tensor& x,
                      const Tensor& weight,
                      const Tensor& targets,
                      const Tensor& d_weight) {
  detail::check_arguments("classifier",
                          {{"x", &x}, {"the weight", &weight}, {"the targets", &targets}},
                          {{"d_weight", &d_weight}});
  check(x.rank() == 2 && weight.rank() == 2 && x.size(1) == weight.size(1),
        "classifier: x (rows, c) and weight (v, c): {} and {}",
        x.shape(),
        weight.shape());
  detail::check_same_dtype("classifier", {&x, &weight});
  check_targets("classifier", targets, x.size(0), weight.size(0));
  check(x.size(0) == 0 || weight.numel() > 0,
        "classifier: a weight of no elements for {} rows: {}",
        x.size(0),
        weight.shape());
  check(weight.contiguous(), "classifier: the weight must be dense: strides {}", weight.strides());
  check(!d_weight.defined() || (d_weight.shape() == weight.shape() &&
                                d_weight.dtype() == weight.dtype() && d_weight.contiguous()),
        "classifier: d_weight must be dense and like the weight {} {}: {} {} strides {}",
        name_of(weight.dtype()),
        weight.shape(),
        name_of(d_weight.dtype()),
        d_weight.shape(),
        d_weight.strides());
}

}  // namespace

Loss classifier(const Tensor& x_in,
                const Tensor& weight,
                const Tensor& targets,
                bool gradient,
                float scale,
                const Tensor& d_weight) {
  check_classifier(x_in, weight, targets, d_weight);
  const auto classify =
      detail::kernel("classifier", x_in.device(), &KernelTable::classifier, x_in.dtype());
  const Tensor x = contiguous(x_in);
  record_classifier(x, weight, gradient);
  Loss out;
  out.losses = empty({x.size(0)}, detail::statistics_dtype(x.dtype()), x.device());
  if (gradient) {
    out.dx = empty_like(x);
    CategoryScope scope(Category::workspace);  // until backward hands it over
    out.d_weight = d_weight.defined() ? d_weight : empty_like(weight);
  }
  if (x.size(0) == 0) {
    if (gradient)
      fill_(out.d_weight, 0);
    return out;
  }
  const detail::Scratch scratch(
      x.device(),
      detail::workspace_bytes(kernel_table(x.device()).classifier_workspace,
                              x.view(),
                              weight.view(),
                              gradient,
                              threads(x.device())));
  detail::launch("classifier", x.device(), [&](StreamHandle s) {
    classify(x.view(),
             weight.view(),
             targets.view(),
             out.losses.view(),
             detail::view_or_null(out.dx),
             detail::view_or_null(out.d_weight),
             scale,
             scratch,
             s);
  });
  if (d_weight.defined())
    d_weight.bump_version();
  return out;
}

}  // namespace sg

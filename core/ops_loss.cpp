#include "core/launch.h"
#include "core/ops.h"
#include "core/products.h"

namespace sg {
namespace {

void check_targets(const char* op, const Tensor& targets, int64_t rows) {
  detail::check_integers(op, "targets", targets);
  check(targets.shape() == Shape{rows} && targets.contiguous(), "{}: {} rows, targets {}", op, rows, targets.shape());
}

// Logits x·weightᵀ, and for gradients dx and d_weight; x (rows, c), weight (v, c).
void record_classifier(const Tensor& x, const Tensor& weight, bool gradient) {
  if (!recording_products()) return;
  const int64_t rows = x.size(0), c = x.size(1), v = weight.size(0);
  record_product({.op = "classifier", .m = rows, .k = c, .n = v, .transpose_b = true});
  if (!gradient) return;
  record_product({.op = "classifier", .m = rows, .k = v, .n = c});
  record_product({.op = "classifier", .m = v, .k = rows, .n = c, .transpose_a = true});
}

}  // namespace

Loss cross_entropy(const Tensor& logits_in, const Tensor& targets, bool gradient, float scale) {
  check(logits_in.rank() == 2, "cross_entropy: (rows, v) logits are needed: {}", logits_in.shape());
  check_targets("cross_entropy", targets, logits_in.size(0));
  detail::check_device("cross_entropy", {&logits_in, &targets});
  const Tensor logits = contiguous(logits_in);
  Loss out;
  out.losses = empty({logits.size(0)}, detail::statistics_dtype(logits.dtype()), logits.device());
  if (gradient) out.d_logits = empty_like(logits);
  detail::launch("cross_entropy", logits.device(), [&](const KernelTable& k, StreamHandle s) {
    detail::require(k.cross_entropy, "cross_entropy", k, logits.dtype())(
        logits.view(), targets.view(), out.losses.view(), detail::view_or_null(out.d_logits), scale, s);
  });
  return out;
}

Loss classifier(const Tensor& x_in, const Tensor& weight, const Tensor& targets, bool gradient, float scale,
                const Tensor& d_weight) {
  check(x_in.rank() == 2 && weight.rank() == 2 && x_in.size(1) == weight.size(1),
        "classifier: x (rows, c) and weight (v, c): {} and {}", x_in.shape(), weight.shape());
  check_targets("classifier", targets, x_in.size(0));
  detail::check_same_dtype("classifier", {&x_in, &weight});
  detail::check_device("classifier", {&x_in, &weight, &targets, &d_weight});
  check(weight.contiguous(), "classifier: the weight must be dense: strides {}", weight.strides());
  check(!d_weight.defined() ||
            (d_weight.shape() == weight.shape() && d_weight.dtype() == weight.dtype() && d_weight.contiguous()),
        "classifier: d_weight must be dense and like the weight {} {}: {} {} strides {}", name_of(weight.dtype()),
        weight.shape(), name_of(d_weight.dtype()), d_weight.shape(), d_weight.strides());
  const Tensor x = contiguous(x_in);
  record_classifier(x, weight, gradient);
  Loss out;
  out.losses = empty({x.size(0)}, detail::statistics_dtype(x.dtype()), x.device());
  if (gradient) {
    out.dx = empty_like(x);
    CategoryScope scope(Category::workspace);  // until backward hands it over
    out.d_weight = d_weight.defined() ? d_weight : empty_like(weight);
  }
  const detail::Scratch scratch(
      x.device(), detail::workspace_bytes(kernel_table(x.device()).classifier_workspace, x.view(), weight.view(),
                                          gradient, threads(x.device())));
  detail::launch("classifier", x.device(), [&](const KernelTable& k, StreamHandle s) {
    detail::require(k.classifier, "classifier", k, x.dtype())(x.view(), weight.view(), targets.view(),
                                                              out.losses.view(), detail::view_or_null(out.dx),
                                                              detail::view_or_null(out.d_weight), scale, scratch, s);
  });
  if (d_weight.defined()) d_weight.bump_version();
  return out;
}

}  // namespace sg

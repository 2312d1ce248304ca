#include <cmath>

#include "core/launch.h"
#include "core/ops.h"
#include "core/products.h"

namespace sg {
namespace {

void check_heads(
    const char* op, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask) {
  detail::check_arguments(op, {{"q", &q}, {"k", &k}, {"v", &v}}, {{"the mask", &mask}});
  check(q.rank() == 4 && k.rank() == 4,
        "{}: q (b,h,t,d), k and v (b,h',s,d) are needed: {}, {}, {}",
        op,
        q.shape(),
        k.shape(),
        v.shape());
  check(k.shape() == v.shape() && k.size(0) == q.size(0) && k.size(3) == q.size(3) &&
            k.size(1) > 0 && q.size(1) % k.size(1) == 0,
        "{}: q {} doesn't fit k {} and v {}",
        op,
        q.shape(),
        k.shape(),
        v.shape());
  detail::check_same_dtype(op, {&q, &k, &v});
  check(q.size(3) > 0, "{}: heads of no elements: q {}", op, q.shape());
  check(q.numel() == 0 || k.size(2) > 0, "{}: {} queries and no keys", op, q.size(2));
}

// The gradients that go with no query at all.
void fill_zero(std::initializer_list<const Tensor*> tensors) {
  for (const Tensor* t : tensors)
    fill_(*t, 0);
}

Tensor last_dense(const Tensor& x) {
  return x.strides()[-1] == 1 ? x : contiguous(x);
}

// Kernel options and the mask's view, which they point to.
struct Options {
  Tensor mask;
  View mask_view;
  AttentionOptions kernel;

  Options(const AttentionParameters& p, const Tensor& q, const Tensor& k) {
    kernel.scale = p.scale != 0 ? p.scale : 1.0f / std::sqrt(static_cast<float>(q.size(3)));
    kernel.causal = p.causal;
    kernel.window = p.window;
    kernel.dropout = p.dropout;
    kernel.random = p.random;
    check(std::isfinite(p.scale), "attention: the scale is {}", p.scale);
    check(0 <= p.dropout && p.dropout < 1, "attention: dropout must lie in [0, 1): {}", p.dropout);
    check(!p.causal || k.size(2) >= q.size(2),
          "attention: causal needs at least as many keys as queries: {} and {}",
          k.size(2),
          q.size(2));
    check(p.window >= 0 && (p.causal || p.window == 0),
          "attention: a window is of causal attention and not negative: {}{}",
          p.window,
          p.causal ? "" : ", not causal");
    if (!p.mask.defined())
      return;
    check(p.mask.dtype() == DType::boolean || p.mask.dtype() == DType::f32,
          "attention: the mask is {}, not bool or f32",
          name_of(p.mask.dtype()));
    mask = p.mask.expand({q.size(0), q.size(1), q.size(2), k.size(2)});
    mask_view = mask.view();
    kernel.mask = &mask_view;
  }
  Options(const Options&) = delete;
};

// Of the pairs of queries and keys, about.
double visible_share(const AttentionParameters& p, double keys) {
  if (!p.causal)
    return 1;
  const auto window = static_cast<double>(p.window);
  if (p.window == 0 || window >= keys)
    return 0.5;
  return window / keys * (1 - 0.5 * window / keys);
}

// Forward makes scores q·kᵀ and mixes values with them; backward makes dP like the scores, dq like
// the mix, and dk, dv with the scores transposed. Scores that a pass makes again aren't counted:
// they are our way, not the operation's need.
void record(const Tensor& q, const Tensor& k, const AttentionParameters& p, bool backward) {
  if (!recording_products())
    return;
  const int64_t batch = q.size(0) * q.size(1), t = q.size(2), s = k.size(2), d = q.size(3);
  const double share = visible_share(p, static_cast<double>(s));
  record_product({.op = "attention",
                  .batch = batch,
                  .m = t,
                  .k = d,
                  .n = s,
                  .transpose_b = true,
                  .share = share});
  record_product({.op = "attention", .batch = batch, .m = t, .k = s, .n = d, .share = share});
  if (!backward)
    return;
  record_product({.op = "attention",
                  .batch = batch,
                  .m = s,
                  .k = t,
                  .n = d,
                  .transpose_a = true,
                  .count = 2,
                  .share = share});
}

size_t workspace(const Tensor& q, const Tensor& k, bool backward) {
  return detail::workspace_bytes(kernel_table(q.device()).attention_workspace,
                                 q.view(),
                                 k.view(),
                                 backward,
                                 threads(q.device()));
}

}  // namespace

Attended attention(const Tensor& q_in,
                   const Tensor& k_in,
                   const Tensor& v_in,
                   const AttentionParameters& parameters) {
  check_heads("attention", q_in, k_in, v_in, parameters.mask);
  const auto attend =
      detail::kernel("attention", q_in.device(), &KernelTable::attention, q_in.dtype());
  const Tensor q = last_dense(q_in), k = last_dense(k_in), v = last_dense(v_in);
  const Options options(parameters, q, k);
  const int64_t b = q.size(0), h = q.size(1), t = q.size(2), d = q.size(3);
  Attended result{empty({b, t, h, d}, q.dtype(), q.device()).transpose(1, 2),
                  empty({b, h, t}, detail::statistics_dtype(q.dtype()), q.device())};
  if (q.numel() == 0)
    return result;
  record(q, k, parameters, false);
  const detail::Scratch scratch(q.device(), workspace(q, k, false));
  detail::launch("attention", q.device(), [&](StreamHandle s) {
    attend(q.view(),
           k.view(),
           v.view(),
           result.out.view(),
           result.lse.view(),
           options.kernel,
           scratch,
           s);
  });
  return result;
}

namespace {

void check_gradients(const char* op,
                     const Tensor& dq,
                     const Tensor& dk,
                     const Tensor& dv,
                     const Tensor& q,
                     const Tensor& k,
                     const Tensor& v,
                     const Tensor& d_out) {
  check(dq.shape() == q.shape() && dk.shape() == k.shape() && dv.shape() == v.shape() &&
            d_out.shape() == q.shape(),
        "{}: gradients {}, {}, {} for q {}, k {}, v {}, d_out {}",
        op,
        dq.shape(),
        dk.shape(),
        dv.shape(),
        q.shape(),
        k.shape(),
        v.shape(),
        d_out.shape());
  const auto dense = [](const Tensor& x) { return x.strides()[-1] == 1; };
  check(dense(dq) && dense(dk) && dense(dv),
        "{}: the last dimension of the gradients must be dense: strides {}, {}, {}",
        op,
        dq.strides(),
        dk.strides(),
        dv.strides());
}

}  // namespace

void attention_backward_(const Tensor& dq,
                         const Tensor& dk,
                         const Tensor& dv,
                         const Tensor& q_in,
                         const Tensor& k_in,
                         const Tensor& v_in,
                         const Attended& forward,
                         const Tensor& d_out_in,
                         const AttentionParameters& parameters) {
  constexpr const char* op = "attention_backward";
  check_heads(op, q_in, k_in, v_in, parameters.mask);
  detail::check_arguments(op,
                          {{"q", &q_in},
                           {"dq", &dq},
                           {"dk", &dk},
                           {"dv", &dv},
                           {"d_out", &d_out_in},
                           {"the output", &forward.out},
                           {"lse", &forward.lse}});
  detail::check_same_dtype(op, {&q_in, &dq, &dk, &dv, &d_out_in, &forward.out});
  check(forward.out.shape() == q_in.shape() &&
            forward.lse.shape() == detail::without_last(q_in.shape()) &&
            forward.lse.dtype() == detail::statistics_dtype(q_in.dtype()),
        "{}: output {} and {} lse {} for q {}",
        op,
        forward.out.shape(),
        name_of(forward.lse.dtype()),
        forward.lse.shape(),
        q_in.shape());
  const auto backward =
      detail::kernel(op, q_in.device(), &KernelTable::attention_backward, q_in.dtype());
  check_gradients(op, dq, dk, dv, q_in, k_in, v_in, d_out_in);
  const Tensor q = last_dense(q_in), k = last_dense(k_in), v = last_dense(v_in),
               d_out = last_dense(d_out_in);
  const Tensor out = last_dense(forward.out), lse = contiguous(forward.lse);
  const Options options(parameters, q, k);
  if (q.numel() == 0)
    return fill_zero({&dq, &dk, &dv});
  record(q, k, parameters, true);
  const detail::Scratch scratch(q.device(), workspace(q, k, true));
  detail::launch(op, q.device(), [&](StreamHandle s) {
    backward(q.view(),
             k.view(),
             v.view(),
             out.view(),
             lse.view(),
             d_out.view(),
             dq.view(),
             dk.view(),
             dv.view(),
             options.kernel,
             scratch,
             s);
  });
  dq.bump_version();
  dk.bump_version();
  dv.bump_version();
}

}  // namespace sg

#include "autograd/ops.h"
#include "autograd/target.h"

namespace sg {
namespace {

// Heads as they come out of a projection: (b,h,t,d) seen through a dense (b,t,h,d), so that
// splitting and merging heads stay views in backward too.
Tensor empty_heads(const Tensor& like) {
  return empty(
             {like.size(0), like.size(2), like.size(1), like.size(3)}, like.dtype(), like.device())
      .transpose(1, 2);
}

// Part i of 3 of qkv (b,t,3c) as (b,h,t,d).
Tensor heads_of(const Tensor& qkv, int64_t i, int64_t heads) {
  const int64_t c = qkv.size(2) / 3;
  return qkv.slice(2, i * c, (i + 1) * c)
      .reshape({qkv.size(0), qkv.size(1), heads, c / heads})
      .transpose(1, 2);
}

Tensor merged(const Tensor& x) {  // (b,h,t,d) → (b,t,h·d)
  return x.transpose(1, 2).reshape({x.size(0), x.size(2), x.size(1) * x.size(3)});
}

// Reading the mask through it checks that nobody changed the mask.
struct MaskedParameters {
  AttentionParameters parameters;
  Saved mask;
  explicit MaskedParameters(const AttentionParameters& p) : parameters(p), mask(p.mask) {}
  const AttentionParameters& get() const {
    if (mask.defined())
      static_cast<void>(mask.tensor());
    return parameters;
  }
};

}  // namespace

Variable attention(const Variable& q,
                   const Variable& k,
                   const Variable& v,
                   const AttentionParameters& parameters) {
  check_defined("attention", {{"q", &q}, {"k", &k}, {"v", &v}});
  const Attended forward = attention(q.tensor(), k.tensor(), v.tensor(), parameters);
  return record(
      "attention",
      forward.out,
      {q, k, v},
      [q = Saved(q),
       k = Saved(k),
       v = Saved(v),
       out = Saved(forward.out),
       lse = forward.lse,
       p = MaskedParameters(parameters)](const Tensor& g) -> Gradients {
        const Tensor dq = empty_heads(q.tensor()), dk = empty_heads(k.tensor()),
                     dv = empty_heads(v.tensor());
        attention_backward_(
            dq, dk, dv, q.tensor(), k.tensor(), v.tensor(), {out.tensor(), lse}, g, p.get());
        return {dq, dk, dv};
      });
}

Variable attention_qkv(const Variable& qkv, int64_t heads, const AttentionParameters& parameters) {
  check_defined("attention_qkv", {{"qkv", &qkv}});
  check(qkv.rank() == 3 && heads > 0 && qkv.size(2) % (3 * heads) == 0,
        "attention_qkv: (b, t, 3c) with c a multiple of {} heads is needed: {}",
        heads,
        qkv.shape());
  const Tensor& x = qkv.tensor();
  const Attended forward =
      attention(heads_of(x, 0, heads), heads_of(x, 1, heads), heads_of(x, 2, heads), parameters);
  return record(
      "attention_qkv",
      merged(forward.out),
      {qkv},
      [qkv = Saved(qkv),
       out = Saved(forward.out),
       lse = forward.lse,
       heads,
       p = MaskedParameters(parameters)](const Tensor& g) -> Gradients {
        const Tensor& x = qkv.tensor();
        Tensor dx = empty(x.shape(), x.dtype(), x.device());
        const auto part = [heads](const Tensor& whole, int64_t i) {
          return heads_of(whole, i, heads);
        };
        const Tensor d_out =
            g.reshape({x.size(0), x.size(1), heads, x.size(2) / (3 * heads)}).transpose(1, 2);
        attention_backward_(part(dx, 0),
                            part(dx, 1),
                            part(dx, 2),
                            part(x, 0),
                            part(x, 1),
                            part(x, 2),
                            {out.tensor(), lse},
                            d_out,
                            p.get());
        return {std::move(dx)};
      });
}

}  // namespace sg

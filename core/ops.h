// Operations on tensors: each validates, promotes, broadcasts and allocates once, then calls one
// kernel. Not differentiable (autograd/ops.h is). Results are new dense tensors on the inputs'
// device; every tensor of a call lies on one device. Errors: usage, "op: rule: values". On meta
// devices shapes and books are kept and no kernel runs.
#pragma once
#include <initializer_list>
#include <span>
#include <vector>

#include "core/tensor.h"
#include "kernels/pointwise.h"
#include "kernels/random.h"
#include "kernels/table.h"

namespace sg {

// ---- memory (ops_memory.cpp)
void fill_(const Tensor& x, double value);
void copy_(const Tensor& out,
           const Tensor& in);        // broadcasts `in`; casts; between devices of one address space
Tensor contiguous(const Tensor& x);  // x itself where it is dense already
Tensor clone(const Tensor& x);       // always a dense copy
Tensor cast(const Tensor& x, DType dtype);  // x itself where it has the dtype already
Tensor to(const Tensor& x, Device device);  // x itself where it lies there already
Tensor concatenate(std::span<const Tensor> parts, int d);
Tensor gather_rows(const Tensor& x, const Tensor& indices);  // x (n,c), indices (m) → (m,c)
Tensor random_uniform(const Shape& shape, const RandomKey& key, float low = 0, float high = 1);
Tensor random_normal(const Shape& shape, const RandomKey& key, float mean = 0, float deviation = 1);

// ---- pointwise (ops_pointwise.cpp): broadcast, promote (the wider float; integers join floats)
Tensor pointwise(PointwiseOp op, std::initializer_list<Tensor> inputs, double scalar = 0);
void pointwise_(PointwiseOp op,
                const Tensor& out,
                std::initializer_list<Tensor> inputs,
                double scalar = 0);  // out may be an input
inline Tensor add(const Tensor& a, const Tensor& b) {
  return pointwise(PointwiseOp::add, {a, b});
}
inline Tensor sub(const Tensor& a, const Tensor& b) {
  return pointwise(PointwiseOp::sub, {a, b});
}
inline Tensor mul(const Tensor& a, const Tensor& b) {
  return pointwise(PointwiseOp::mul, {a, b});
}
inline Tensor div(const Tensor& a, const Tensor& b) {
  return pointwise(PointwiseOp::div, {a, b});
}
inline Tensor scale(const Tensor& a, double factor) {
  return pointwise(PointwiseOp::mul_scalar, {a}, factor);
}
void accumulate_(const Tensor& acc,
                 const Tensor& x);  // acc += x; x's dtype, or f32 for 16 bits; same shape

// ---- reductions (ops_reduce.cpp): over `dims` (all when empty); `keep` leaves sizes of 1
Tensor reduce(ReduceOp op, const Tensor& x, const Dims& dims = {}, bool keep = false);
inline Tensor sum(const Tensor& x, const Dims& dims = {}, bool keep = false) {
  return reduce(ReduceOp::sum, x, dims, keep);
}
inline Tensor mean(const Tensor& x, const Dims& dims = {}, bool keep = false) {
  return reduce(ReduceOp::mean, x, dims, keep);
}
Tensor sum_to(const Tensor& x,
              const Shape& shape);  // sums broadcast dimensions away: the gradient of expand
Tensor argmax(const Tensor& x);     // over the last dimension; i64

// ---- products (ops_matmul.cpp): (…,m,k)·(…,k,n) → (…,m,n), leading dimensions broadcast
Tensor matmul(const Tensor& a, const Tensor& b, const Tensor& bias = {});  // bias (n)
void matmul_(const Tensor& out,
             const Tensor& a,
             const Tensor& b,
             bool accumulate);  // out (+)= a·b, out dense

// ---- rows (ops_nn.cpp): normalised over the last dimension
Tensor softmax(const Tensor& x);
Tensor softmax_backward(const Tensor& y, const Tensor& dy);
struct Normalised {
  Tensor y, mean,
      rstd;    // mean, rstd: x's shape without its last dimension; mean undefined for rmsnorm
  Tensor sum;  // x + residual where a residual was given, else x
};
Normalised layernorm(const Tensor& x,
                     const Tensor& gain,
                     const Tensor& bias,
                     float eps,
                     const Tensor& residual = {});
Normalised rmsnorm(const Tensor& x, const Tensor& gain, float eps, const Tensor& residual = {});
struct NormGradients {
  Tensor dx, d_gain, d_bias;  // d_bias undefined where there is no bias
};
// x is the normalised input (`sum` above); d_sum, where defined, is added to dx. dx lies in dy's
// memory where nobody else holds it: move dy in if it isn't needed any more.
NormGradients layernorm_backward(Tensor dy,
                                 const Tensor& x,
                                 const Tensor& gain,
                                 const Tensor& mean,
                                 const Tensor& rstd,
                                 bool has_bias,
                                 const Tensor& d_sum = {});
NormGradients rmsnorm_backward(
    Tensor dy, const Tensor& x, const Tensor& gain, const Tensor& rstd, const Tensor& d_sum = {});
struct ActivationGradients {
  Tensor dx, d_bias;
};
// f: gelu, gelu_tanh, silu, relu. d_bias (last dimension) = sums of dx over the rest, when asked
// for. dx as above.
ActivationGradients activation_backward(PointwiseOp f, const Tensor& x, Tensor dy, bool want_bias);
Tensor column_sum(const Tensor& dy);  // (…, n) → (n)
// x (b,t,h,d), positions (t) i64; inverse: the gradient's way, which turns back.
Tensor rope(const Tensor& x,
            const Tensor& positions,
            const RopeOptions& options,
            bool inverse = false);
Tensor dropout(const Tensor& x,
               float probability,
               const RandomKey& key);  // also its own gradient, of dy

Tensor embedding(const Tensor& table, const Tensor& ids);  // table (v,c), ids i32|i64 (…) → (…,c)
void embedding_backward_(const Tensor& d_table,
                         const Tensor& ids,
                         const Tensor& dy,
                         bool accumulate);

// ---- attention (ops_attention.cpp): q (b,h,t,d), k, v (b,hk,s,d), last dimension dense
struct AttentionParameters {
  bool causal = false;
  int64_t window = 0;  // causal: keys that a query sees at most, its own among them; 0: all
  float scale = 0;     // 0: 1/sqrt(d)
  Tensor mask = {};    // broadcasts to (b,h,t,s): boolean (true = visible) or f32 (added)
  float dropout = 0;
  RandomKey random = {};
};
struct Attended {
  Tensor out, lse;  // out is (b,h,t,d) seen through a dense (b,t,h,d), so that merging heads is a
                    // view; lse (b,h,t)
};
Attended attention(const Tensor& q,
                   const Tensor& k,
                   const Tensor& v,
                   const AttentionParameters& parameters);
// Writes dq, dk, dv (shapes of q, k, v; any strides, last dimension dense), so that one (b,t,3c)
// buffer can take all three.
void attention_backward_(const Tensor& dq,
                         const Tensor& dk,
                         const Tensor& dv,
                         const Tensor& q,
                         const Tensor& k,
                         const Tensor& v,
                         const Attended& forward,
                         const Tensor& d_out,
                         const AttentionParameters& parameters);

// ---- loss (ops_loss.cpp): targets i32|i64, −1 is ignored
struct Loss {
  Tensor losses;    // one per row; 0 where ignored
  Tensor d_logits;  // scale · ∂Σlosses/∂logits, where asked for
  Tensor dx, d_weight;
};
Loss cross_entropy(const Tensor& logits,
                   const Tensor& targets,
                   bool gradient,
                   float scale = 1);  // logits (rows, v)
// The classifier x·weightᵀ fused with its loss by chunks of rows: x (rows,c), weight (v,c). With
// `gradient` also dx and d_weight of scale · Σ losses, computed here, while the logits exist; the
// latter in `d_weight`, dense and like weight, if given.
Loss classifier(const Tensor& x,
                const Tensor& weight,
                const Tensor& targets,
                bool gradient,
                float scale = 1,
                const Tensor& d_weight = {});

// ---- optimizer (ops_update.cpp): one-dimensional dense f32 masters; `parameter` is the 16-bit
// copy or undefined
void adam_(const Tensor& master,
           const Tensor& gradient,
           const Tensor& moment1,
           const Tensor& moment2,
           const Tensor& parameter,
           const AdamOptions& options);
void sgd_(const Tensor& master,
          const Tensor& gradient,
          const Tensor& momentum,
          const Tensor& parameter,
          const SgdOptions& options);
void lion_(const Tensor& master,
           const Tensor& gradient,
           const Tensor& momentum,
           const Tensor& parameter,
           const LionOptions& options);
Tensor sum_squares(const Tensor& x);  // (n) → (⌈n/1024⌉) f64 partial sums
// Rule 3 of the numerics: rank order, pairwise.
Tensor tree_sum(std::span<const Tensor> inputs, float scale, DType out);
Tensor find_nonfinite(const Tensor& x);  // (1) i64: where the first value is that isn't, or −1

// Adjacent pairs, an odd last one carried up; 0 for none. The order of every sum over chunks,
// parameters and ranks.
double tree_sum(std::span<const double> values);

}  // namespace sg

// Causal self-attention: the projections around the fused attention op.
#pragma once
#include <optional>

#include "nn/layers.h"

namespace sg::nn {

struct CausalSelfAttentionOptions {
  int64_t width = 0, heads = 0;  // heads divides width
  bool bias = true;
  float dropout = 0;                                     // of attention weights
  Initializer init = {}, out_init = {}, bias_init = {};  // empty: Linear's
};
// x (b,t,width) → (b,t,width). One projection makes queries, keys and values, (3·width, width) in
// this order.
class CausalSelfAttention final : public Layer {
 public:
  explicit CausalSelfAttention(const CausalSelfAttentionOptions& options);
  Variable forward(const Variable& x) override;

  Linear qkv, out;

 private:
  const int64_t heads_;
  const float dropout_;
};

struct MultiHeadAttentionOptions {
  int64_t width = 0, heads = 0;
  int64_t kv_heads = 0;    // of keys and values, which groups of query heads share; 0: heads
  int64_t head_width = 0;  // 0: width / heads
  bool causal = true;
  int64_t window = 0;                    // causal: keys that a query sees at most; 0: all
  std::optional<RopeOptions> rope = {};  // positions turn queries and keys; none: they don't
  bool qkv_bias = false, out_bias = false;
  bool qk_norm = false;  // RMSNorm of each head's queries and keys
  float norm_eps = 1e-6f;
  float dropout = 0;                                     // of attention weights
  Initializer init = {}, out_init = {}, bias_init = {};  // empty: Linear's
};
// x (b,t,width) → (b,t,width), with a projection each for queries, keys and values, so that they
// may differ in number: grouped-query attention (Ainslie et al., "GQA", 2023).
class MultiHeadAttention final : public Layer {
 public:
  explicit MultiHeadAttention(const MultiHeadAttentionOptions& options);
  Variable forward(const Variable& x) override { return forward(x, {}); }
  Variable forward(const Variable& x, const Tensor& mask);  // AttentionParameters::mask

  Linear q, k, v, out;
  std::optional<RMSNorm> q_norm, k_norm;

 private:
  Variable heads_of(const Variable& x, int64_t heads) const;
  Variable turned(const Variable& x) const;

  const MultiHeadAttentionOptions options_;
};

}  // namespace sg::nn

// Causal self-attention: the projections around the fused attention op.
#pragma once
#include "nn/layers.h"

namespace sg::nn {

struct CausalSelfAttentionOptions {
  int64_t width = 0, heads = 0;  // heads divides width
  bool bias = true;
  float dropout = 0;                                     // of attention weights
  Initialiser init = {}, out_init = {}, bias_init = {};  // empty: Linear's
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

}  // namespace sg::nn

#include "nn/attention.h"

#include "nn/micro_step.h"

namespace sg::nn {
namespace {

const CausalSelfAttentionOptions& checked(const CausalSelfAttentionOptions& o) {
  check(o.heads > 0 && o.width > 0 && o.width % o.heads == 0,
        "attention: {} heads don't divide width {}",
        o.heads,
        o.width);
  check(0 <= o.dropout && o.dropout < 1, "attention: dropout must lie in [0, 1): {}", o.dropout);
  return o;
}

}  // namespace

CausalSelfAttention::CausalSelfAttention(const CausalSelfAttentionOptions& o)
    : qkv({.in = checked(o).width,
           .out = 3 * o.width,
           .bias = o.bias,
           .weight_init = o.init,
           .bias_init = o.bias_init}),
      out({.in = o.width,
           .out = o.width,
           .bias = o.bias,
           .weight_init = o.out_init,
           .bias_init = o.bias_init}),
      heads_(o.heads),
      dropout_(o.dropout) {
  add("qkv", qkv);
  add("out", out);
}

Variable CausalSelfAttention::forward(const Variable& x) {
  AttentionParameters parameters{.causal = true};
  if (training() && dropout_ > 0) {
    parameters.dropout = dropout_;
    parameters.random = next_key(path());
  }
  return out.forward(attention_qkv(qkv.forward(x), heads_, parameters));
}

}  // namespace sg::nn

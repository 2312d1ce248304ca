#include "nn/attention.h"

#include <numeric>
#include <vector>

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

// What was left open, filled in.
MultiHeadAttentionOptions settled(MultiHeadAttentionOptions o) {
  check(o.width > 0 && o.heads > 0, "attention: {} heads of width {}", o.heads, o.width);
  if (o.kv_heads == 0)
    o.kv_heads = o.heads;
  check(o.kv_heads > 0 && o.heads % o.kv_heads == 0,
        "attention: {} heads of keys don't divide {} heads of queries",
        o.kv_heads,
        o.heads);
  check(o.head_width > 0 || o.width % o.heads == 0,
        "attention: {} heads don't divide width {}",
        o.heads,
        o.width);
  if (o.head_width == 0)
    o.head_width = o.width / o.heads;
  check(!o.rope || o.head_width % 2 == 0,
        "attention: rotary positions turn pairs, heads of {} have none for each element",
        o.head_width);
  check(0 <= o.dropout && o.dropout < 1, "attention: dropout must lie in [0, 1): {}", o.dropout);
  return o;
}

LinearOptions projection(const MultiHeadAttentionOptions& given, bool of_queries) {
  const MultiHeadAttentionOptions o = settled(given);
  return {.in = o.width,
          .out = o.head_width * (of_queries ? o.heads : o.kv_heads),
          .bias = o.qkv_bias,
          .weight_init = o.init,
          .bias_init = o.bias_init};
}

LinearOptions output(const MultiHeadAttentionOptions& given) {
  const MultiHeadAttentionOptions o = settled(given);
  return {.in = o.head_width * o.heads,
          .out = o.width,
          .bias = o.out_bias,
          .weight_init = o.out_init,
          .bias_init = o.bias_init};
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

MultiHeadAttention::MultiHeadAttention(const MultiHeadAttentionOptions& o)
    : q(projection(o, true)),
      k(projection(o, false)),
      v(projection(o, false)),
      out(output(o)),
      options_(settled(o)) {
  add("q", q);
  add("k", k);
  add("v", v);
  add("out", out);
  if (!o.qk_norm)
    return;
  add("q_norm", q_norm.emplace(options_.head_width, o.norm_eps));
  add("k_norm", k_norm.emplace(options_.head_width, o.norm_eps));
}

// (b,t,heads·d) → (b,t,heads,d)
Variable MultiHeadAttention::heads_of(const Variable& x, int64_t heads) const {
  return reshape(x, {x.size(0), x.size(1), heads, options_.head_width});
}

Variable MultiHeadAttention::turned(const Variable& x) const {
  if (!options_.rope)
    return x;
  std::vector<int64_t> positions(static_cast<size_t>(x.size(1)));
  std::iota(positions.begin(), positions.end(), 0);
  return rope(x, from_vector(positions), *options_.rope);
}

Variable MultiHeadAttention::forward(const Variable& x, const Tensor& mask) {
  check(x.rank() == 3, "attention: (b, t, width) is needed: {}", x.shape());
  AttentionParameters parameters{
      .causal = options_.causal, .window = options_.window, .mask = mask};
  if (training() && options_.dropout > 0) {
    parameters.dropout = options_.dropout;
    parameters.random = next_key(path());
  }
  Variable queries = heads_of(q.forward(x), options_.heads);
  Variable keys = heads_of(k.forward(x), options_.kv_heads);
  const Variable values = heads_of(v.forward(x), options_.kv_heads);
  if (q_norm) {
    queries = q_norm->forward(queries);
    keys = k_norm->forward(keys);
  }
  const auto by_heads = [](const Variable& y) { return transpose(y, 1, 2); };
  const Variable attended =
      attention(by_heads(turned(queries)), by_heads(turned(keys)), by_heads(values), parameters);
  const int64_t width = options_.heads * options_.head_width;
  return out.forward(reshape(by_heads(attended), {x.size(0), x.size(1), width}));
}

}  // namespace sg::nn

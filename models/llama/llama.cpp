#include "models/llama/llama.h"

namespace sg::models {
namespace {

constexpr float deviation = 0.02f;

const LlamaOptions& checked(const LlamaOptions& o) {
  check(o.layers > 0 && o.width > 0 && o.hidden > 0 && o.context > 0 && o.vocab > 0,
        "llama: sizes must be positive: layers {}, width {}, hidden {}, context {}, vocab {}",
        o.layers,
        o.width,
        o.hidden,
        o.context,
        o.vocab);
  check(o.window >= 0, "llama: window must not be negative: {}", o.window);
  return o;
}

nn::MultiHeadAttentionOptions attention_of(const LlamaOptions& o) {
  return {.width = o.width,
          .heads = o.heads,
          .kv_heads = o.kv_heads,
          .head_width = o.head_width,
          .window = o.window,
          .rope = o.rope,
          .qkv_bias = o.qkv_bias,
          .out_bias = o.out_bias,
          .qk_norm = o.qk_norm,
          .norm_eps = o.norm_eps,
          .init = nn::normal(deviation),
          .out_init = nn::normal(deviation),
          .bias_init = nn::zeros()};
}

}  // namespace

LlamaEmbedding::LlamaEmbedding(const LlamaOptions& o)
    : tokens(o.vocab, o.width, nn::normal(deviation)) {
  add("tokens", tokens);
}

Variable LlamaEmbedding::forward(const Tensor& ids) {
  return in_unit([&] { return tokens.forward(ids); });
}

LlamaBlock::LlamaBlock(const LlamaOptions& o)
    : norm1(o.width, o.norm_eps),
      norm2(o.width, o.norm_eps),
      attention(attention_of(o)),
      mlp({.width = o.width,
           .hidden = o.hidden,
           .bias = o.mlp_bias,
           .init = nn::normal(deviation),
           .out_init = nn::normal(deviation),
           .bias_init = nn::zeros()}) {
  add("norm1", norm1);
  add("attention", attention);
  add("norm2", norm2);
  add("mlp", mlp);
}

nn::Residual LlamaBlock::compute(const nn::Residual& in, const Tensor&) {
  const auto [y, x] = norm1.forward_sum(in.x, in.delta);
  const auto [z, attended] = norm2.forward_sum(x, attention.forward(y));
  return {attended, mlp.forward(z)};
}

LlamaHead::LlamaHead(const LlamaOptions& o, const Variable& embedding) : norm(o.width, o.norm_eps) {
  add("norm", norm);
  if (o.tied) {
    tie_parameter("weight", weight = embedding);
  } else {
    weight = add_parameter("weight", {o.vocab, o.width}, nn::normal(deviation));
  }
}

Variable LlamaHead::loss(const nn::Residual& in, const Tensor& targets) {
  return in_unit(
      [&] { return classifier_loss(norm.forward_sum(in.x, in.delta).y, weight, targets); });
}

Variable LlamaHead::logits(const nn::Residual& in, bool last_only) {
  return in_unit([&] {
    Variable y = norm.forward_sum(in.x, in.delta).y;
    if (last_only)
      y = select(y, 1, y.size(1) - 1);
    return linear(y, weight, {});
  });
}

Llama::Llama(const LlamaOptions& o)
    : options_(checked(o)), embedding_(o), head_(o, embedding_.tokens.weight) {
  using Flow = std::span<const Variable>;
  add_unit("embedding", embedding_, [this](Flow in) {
    check(in.size() == 1, "llama: the embedding takes tokens alone, not {} tensors", in.size());
    return nn::flow_of({embedding_.forward(in[0].tensor()), {}});
  });
  for (int64_t i = 0; i < o.layers; ++i) {
    blocks_.push_back(std::make_unique<LlamaBlock>(o));
    add_block(fmt::format("block{}", i), *blocks_.back());
  }
  add_unit("head", head_, [this](Flow in) {
    check(in.size() == 3,
          "llama: the head takes the residual stream, what is added to it and targets, not {} "
          "tensors",
          in.size());
    return std::vector{head_.loss(nn::residual_of(in), in[2].tensor())};
  });
  initialize(o.seed);
}

nn::Residual Llama::trunk(const Tensor& tokens) {
  check(tokens.rank() == 2 && tokens.size(1) <= options_.context,
        "llama: tokens must be (batch, length ≤ context {}): {}",
        options_.context,
        tokens.shape());
  return nn::run_blocks(blocks_, {embedding_.forward(tokens), {}});
}

Variable Llama::loss(const Tensor& tokens, const Tensor& targets) {
  check(tokens.shape() == targets.shape(),
        "llama: tokens {} and targets {} differ in shape",
        tokens.shape(),
        targets.shape());
  return head_.loss(trunk(tokens), targets);
}
Variable Llama::logits(const Tensor& tokens) {
  return head_.logits(trunk(tokens), false);
}
Variable Llama::last_logits(const Tensor& tokens) {
  return head_.logits(trunk(tokens), true);
}

}  // namespace sg::models

#include "models/gpt2/gpt2.h"

#include <cmath>
#include <numeric>

namespace sg::models {
namespace {

constexpr float deviation = 0.02f;

// Each of the 2·layers sums into the residual stream starts smaller, so that its variance doesn't
// grow with depth.
nn::Initializer residual_init(const Gpt2Options& o) {
  return nn::normal(deviation / std::sqrt(2.0f * static_cast<float>(o.layers)));
}

const Gpt2Options& checked(const Gpt2Options& o) {
  check(o.layers > 0 && o.heads > 0 && o.width > 0 && o.context > 0 && o.vocab > 0,
        "gpt2: sizes must be positive: layers {}, heads {}, width {}, context {}, vocab {}",
        o.layers,
        o.heads,
        o.width,
        o.context,
        o.vocab);
  check(o.width % o.heads == 0,
        "gpt2: heads must divide width: {} heads, width {}",
        o.heads,
        o.width);
  check(0 <= o.dropout && o.dropout < 1, "gpt2: dropout must lie in [0, 1): {}", o.dropout);
  return o;
}

}  // namespace

Gpt2Options gpt2_preset(const std::string& size) {
  if (size == "nano")
    return {.layers = 4, .heads = 4, .width = 128, .context = 64, .vocab = 0, .bias = false};
  if (size == "124m")
    return {.layers = 12, .heads = 12, .width = 768};
  if (size == "350m")
    return {.layers = 24, .heads = 16, .width = 1024};
  if (size == "774m")
    return {.layers = 36, .heads = 20, .width = 1280};
  if (size == "1558m")
    return {.layers = 48, .heads = 25, .width = 1600};
  fail(ErrorKind::usage,
       "gpt2: there is no size \"{}\"; sizes are nano, 124m, 350m, 774m, 1558m",
       size);
}

Gpt2Embeddings::Gpt2Embeddings(const Gpt2Options& o)
    : tokens(o.vocab, o.width, nn::normal(deviation)),
      positions(o.context, o.width, nn::normal(deviation)),
      dropout_(o.dropout) {
  add("tokens", tokens);
  add("positions", positions);
  add("dropout", dropout_);
}

Variable Gpt2Embeddings::forward(const Tensor& ids) {
  check(ids.rank() == 2 && ids.size(1) <= positions.weight.size(0),
        "gpt2: tokens must be (batch, length ≤ context {}): {}",
        positions.weight.size(0),
        ids.shape());
  return in_unit([&] {
    std::vector<int32_t> numbers(static_cast<size_t>(ids.size(1)));
    std::iota(numbers.begin(), numbers.end(), 0);
    return dropout_.forward(tokens.forward(ids) + positions.forward(from_vector(numbers)));
  });
}

Gpt2Block::Gpt2Block(const Gpt2Options& o)
    : norm1(o.width, {.bias = o.bias}),
      norm2(o.width, {.bias = o.bias}),
      attention({.width = o.width,
                 .heads = o.heads,
                 .bias = o.bias,
                 .dropout = o.dropout,
                 .init = nn::normal(deviation),
                 .out_init = residual_init(o),
                 .bias_init = nn::zeros()}),
      mlp({.width = o.width,
           .hidden = 4 * o.width,
           .bias = o.bias,
           .init = nn::normal(deviation),
           .out_init = residual_init(o),
           .bias_init = nn::zeros()}),
      dropout1_(o.dropout),
      dropout2_(o.dropout) {
  add("norm1", norm1);
  add("attention", attention);
  add("dropout1", dropout1_);
  add("norm2", norm2);
  add("mlp", mlp);
  add("dropout2", dropout2_);
}

nn::Residual Gpt2Block::compute(const nn::Residual& in, const Tensor&) {
  const auto [y, x] = norm1.forward_sum(in.x, in.delta);
  const auto [z, attended] = norm2.forward_sum(x, dropout1_.forward(attention.forward(y)));
  return {attended, dropout2_.forward(mlp.forward(z))};
}

Gpt2Head::Gpt2Head(const Gpt2Options& o, const Variable& embedding)
    : norm(o.width, {.bias = o.bias}) {
  add("norm", norm);
  if (o.tied) {
    tie_parameter("weight", weight = embedding);
  } else {
    weight = add_parameter("weight", {o.vocab, o.width}, nn::normal(deviation));
  }
}

Variable Gpt2Head::loss(const nn::Residual& in, const Tensor& targets) {
  return in_unit(
      [&] { return classifier_loss(norm.forward_sum(in.x, in.delta).y, weight, targets); });
}

Variable Gpt2Head::logits(const nn::Residual& in, bool last_only) {
  return in_unit([&] {
    Variable y = norm.forward_sum(in.x, in.delta).y;
    if (last_only)
      y = select(y, 1, y.size(1) - 1);
    return linear(y, weight, {});
  });
}

Gpt2::Gpt2(const Gpt2Options& o)
    : options_(checked(o)), embeddings_(o), head_(o, embeddings_.tokens.weight) {
  using Flow = std::span<const Variable>;
  add_unit("embeddings", embeddings_, [this](Flow in) {
    check(in.size() == 1, "gpt2: the embeddings take tokens alone, not {} tensors", in.size());
    return nn::flow_of({embeddings_.forward(in[0].tensor()), {}});
  });
  for (int64_t i = 0; i < o.layers; ++i) {
    blocks_.push_back(std::make_unique<Gpt2Block>(o));
    add_block(fmt::format("block{}", i), *blocks_.back());
  }
  add_unit("head", head_, [this](Flow in) {
    check(
        in.size() == 3,
        "gpt2: the head takes the residual stream, what is added to it and targets, not {} tensors",
        in.size());
    return std::vector{head_.loss(nn::residual_of(in), in[2].tensor())};
  });
  initialize(o.seed);
}

nn::Residual Gpt2::trunk(const Tensor& tokens) {
  return nn::run_blocks(blocks_, {embeddings_.forward(tokens), {}});
}

Variable Gpt2::loss(const Tensor& tokens, const Tensor& targets) {
  check(tokens.shape() == targets.shape(),
        "gpt2: tokens {} and targets {} differ in shape",
        tokens.shape(),
        targets.shape());
  return head_.loss(trunk(tokens), targets);
}
Variable Gpt2::logits(const Tensor& tokens) {
  return head_.logits(trunk(tokens), false);
}
Variable Gpt2::last_logits(const Tensor& tokens) {
  return head_.logits(trunk(tokens), true);
}

}  // namespace sg::models

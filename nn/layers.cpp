#include "nn/layers.h"

#include <cmath>
#include <string>

#include "nn/micro_step.h"

namespace sg::nn {
namespace {

Initializer either(const Initializer& given, Initializer otherwise) {
  return given ? given : std::move(otherwise);
}

// The two ends of an MLP.
LinearOptions inner_of(const MLPOptions& o) {
  return {.in = o.width,
          .out = o.hidden,
          .bias = o.bias,
          .weight_init = o.init,
          .bias_init = o.bias_init};
}
LinearOptions outer_of(const MLPOptions& o) {
  return {.in = o.hidden,
          .out = o.width,
          .bias = o.bias,
          .weight_init = o.out_init,
          .bias_init = o.bias_init};
}

void check_norm(const char* op, int64_t width, float eps) {
  check(width > 0, "{}: the width must be positive: {}", op, width);
  check(eps >= 0 && std::isfinite(eps), "{}: eps must not be negative: {}", op, eps);
}

}  // namespace

Linear::Linear(const LinearOptions& o) {
  check(o.in > 0 && o.out > 0, "linear: sizes must be positive: {} → {}", o.in, o.out);
  weight = add_parameter("weight", {o.out, o.in}, either(o.weight_init, fan_in_uniform(o.in)));
  if (o.bias)
    bias = add_parameter("bias", {o.out}, either(o.bias_init, fan_in_uniform(o.in)));
}
Variable Linear::forward(const Variable& x) {
  return linear(x, weight, bias);
}
Variable Linear::forward_activation(PointwiseOp f, const Variable& x) {
  return linear_activation(f, x, weight, bias);
}

Embedding::Embedding(int64_t count, int64_t width, Initializer init) {
  check(count > 0 && width > 0, "embedding: sizes must be positive: {} × {}", count, width);
  weight = add_parameter("weight", {count, width}, std::move(init));
}
Variable Embedding::forward(const Tensor& ids) {
  return embedding(weight, ids);
}

LayerNorm::LayerNorm(int64_t width, const LayerNormOptions& o) : eps_(o.eps) {
  check_norm("layernorm", width, eps_);
  gain = add_parameter("weight", {width}, ones());
  if (o.bias)
    bias = add_parameter("bias", {width}, zeros());
}
Variable LayerNorm::forward(const Variable& x) {
  return layernorm(x, gain, bias, eps_);
}
NormedSum LayerNorm::forward_sum(const Variable& x, const Variable& delta) {
  return layernorm(x, delta, gain, bias, eps_);
}

RMSNorm::RMSNorm(int64_t width, float eps) : eps_(eps) {
  check_norm("rmsnorm", width, eps_);
  gain = add_parameter("weight", {width}, ones());
}
Variable RMSNorm::forward(const Variable& x) {
  return rmsnorm(x, gain, eps_);
}
NormedSum RMSNorm::forward_sum(const Variable& x, const Variable& delta) {
  return rmsnorm(x, delta, gain, eps_);
}

Dropout::Dropout(float probability) : probability_(probability) {
  check(0 <= probability && probability < 1,
        "dropout: the probability must lie in [0, 1): {}",
        probability);
}
Variable Dropout::forward(const Variable& x) {
  if (!training() || probability_ == 0)
    return x;
  return dropout(x, probability_, next_key(path()));
}

MLP::MLP(const MLPOptions& o) : in(inner_of(o)), out(outer_of(o)), activation_(o.activation) {
  add("in", in);
  add("out", out);
}
Variable MLP::forward(const Variable& x) {
  return out.forward(in.forward_activation(activation_, x));
}

GatedMLP::GatedMLP(const MLPOptions& o) : gate(inner_of(o)), in(inner_of(o)), out(outer_of(o)) {
  add("gate", gate);
  add("in", in);
  add("out", out);
}
Variable GatedMLP::forward(const Variable& x) {
  const Variable opened = gate.forward(x);
  return out.forward(silu_gate(opened, in.forward(x)));
}

void Sequential::append(std::unique_ptr<Layer> layer) {
  check(layer != nullptr, "sequential: layer {} is none", layers_.size());
  add(std::to_string(layers_.size()), *layer);
  layers_.push_back(std::move(layer));
}
Variable Sequential::forward(const Variable& x) {
  return in_unit([&] {
    Variable y = x;
    for (const auto& layer : layers_)
      y = layer->forward(y);
    return y;
  });
}

}  // namespace sg::nn

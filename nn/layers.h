// The layers that models are built of. Options have designated initializers: Linear({.in = 768,
// .out = 3072}).
#pragma once
#include <memory>
#include <utility>
#include <vector>

#include "autograd/ops.h"
#include "nn/module.h"

namespace sg::nn {

// A layer with one input and one output: what Sequential strings together.
class Layer : public Module {
 public:
  virtual Variable forward(const Variable& x) = 0;
};

struct LinearOptions {
  int64_t in = 0, out = 0;
  bool bias = true;
  Initializer weight_init = {};  // empty: uniform in ±1/√in, as PyTorch's default
  Initializer bias_init = {};    // empty: the same
};
// x (…, in) → (…, out): x·weightᵀ + bias; weight (out, in).
class Linear final : public Layer {
 public:
  explicit Linear(const LinearOptions& options);
  Variable forward(const Variable& x) override;
  // f fused: gelu, gelu_tanh, silu, relu.
  Variable forward_activation(PointwiseOp f, const Variable& x);

  Variable weight, bias;  // bias undefined where there is none
};

// ids (…) i32 or i64 → (…, width); weight (count, width).
class Embedding final : public Module {
 public:
  Embedding(int64_t count, int64_t width, Initializer init = normal(1));
  Variable forward(const Tensor& ids);

  Variable weight;
};

struct LayerNormOptions {
  bool bias = true;
  float eps = 1e-5f;
};
// Over the last dimension.
class LayerNorm final : public Layer {
 public:
  explicit LayerNorm(int64_t width, const LayerNormOptions& options = {});
  Variable forward(const Variable& x) override;
  // The norm of the residual stream x + delta, fused with that sum; delta undefined: of x alone.
  NormedSum forward_sum(const Variable& x, const Variable& delta);

  Variable gain, bias;

 private:
  const float eps_;
};

class RMSNorm final : public Layer {
 public:
  explicit RMSNorm(int64_t width, float eps = 1e-6f);
  Variable forward(const Variable& x) override;
  NormedSum forward_sum(const Variable& x, const Variable& delta);

  Variable gain;

 private:
  const float eps_;
};

// In training mode zeroes each element with `probability` and scales the others by 1/(1 −
// probability). Needs an nn::MicroStepScope then; dimension 0 is the sample.
class Dropout final : public Layer {
 public:
  explicit Dropout(float probability);
  Variable forward(const Variable& x) override;

 private:
  const float probability_;
};

// width → hidden → activation → width.
struct MLPOptions {
  int64_t width = 0, hidden = 0;
  bool bias = true;
  PointwiseOp activation = PointwiseOp::gelu_tanh;
  Initializer init = {}, out_init = {}, bias_init = {};  // empty: Linear's
};
class MLP final : public Layer {
 public:
  explicit MLP(const MLPOptions& options);
  Variable forward(const Variable& x) override;

  Linear in, out;

 private:
  const PointwiseOp activation_;
};

// width → hidden twice, silu of one times the other → width: SwiGLU (Shazeer, "GLU Variants Improve
// Transformer", 2020). `activation` isn't asked for.
class GatedMLP final : public Layer {
 public:
  explicit GatedMLP(const MLPOptions& options);
  Variable forward(const Variable& x) override;

  Linear gate, in, out;
};

// Layers one after the other, owned: Sequential(std::make_unique<Linear>(…),
// std::make_unique<MLP>(…)).
class Sequential final : public Layer {
 public:
  template <class... Layers>
  explicit Sequential(std::unique_ptr<Layers>... layers) {
    (append(std::move(layers)), ...);
  }
  void append(std::unique_ptr<Layer> layer);  // named by its number
  Variable forward(const Variable& x) override;
  size_t size() const { return layers_.size(); }

 private:
  std::vector<std::unique_ptr<Layer>> layers_;
};

}  // namespace sg::nn

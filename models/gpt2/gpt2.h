// GPT-2 (Radford et al., "Language Models are Unsupervised Multitask Learners", 2019): pre-norm
// blocks of causal self-attention and a four times wider MLP with tanh GELU, learned positions, the
// classifier tied to the embedding.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "models/language_model.h"
#include "nn/attention.h"
#include "nn/block.h"
#include "nn/layers.h"

namespace sg::models {

struct Gpt2Options {
  int64_t layers = 12, heads = 12, width = 768, context = 1024, vocab = 50257;
  bool bias = true;   // of linear layers and norms
  float dropout = 0;  // after the embeddings, of attention weights, on what each layer adds
  bool tied = true;   // classifier and token embedding are one parameter
  uint64_t seed = 1;  // of the initial values
};

// nano, 124m, 350m, 774m, 1558m; another name is a usage error that lists them. nano's vocabulary
// is its tokenizer's: 0.
Gpt2Options gpt2_preset(const std::string& size);

class Gpt2Embeddings final : public nn::Module {
 public:
  explicit Gpt2Embeddings(const Gpt2Options& options);
  Variable forward(const Tensor& tokens);  // (b,t) → (b,t,width)

  nn::Embedding tokens, positions;

 private:
  nn::Dropout dropout_;
};

class Gpt2Block final : public nn::Block {
 public:
  explicit Gpt2Block(const Gpt2Options& options);
  nn::LayerNorm norm1, norm2;
  nn::CausalSelfAttention attention;
  nn::MLP mlp;

 private:
  nn::Residual compute(const nn::Residual& in, const Tensor& mask) override;

  nn::Dropout dropout1_, dropout2_;
};

class Gpt2Head final : public nn::Module {
 public:
  Gpt2Head(const Gpt2Options& options, const Variable& embedding);
  Variable loss(const nn::Residual& in, const Tensor& targets);
  Variable logits(const nn::Residual& in, bool last_only);

  nn::LayerNorm norm;
  Variable weight;  // (vocab, width)
};

class Gpt2 final : public LanguageModel {
 public:
  explicit Gpt2(const Gpt2Options& options);

  Variable loss(const Tensor& tokens, const Tensor& targets) override;
  Variable logits(const Tensor& tokens) override;
  Variable last_logits(const Tensor& tokens) override;
  int64_t context() const override { return options_.context; }
  int64_t vocab() const override { return options_.vocab; }
  const Gpt2Options& options() const { return options_; }

 private:
  nn::Residual trunk(const Tensor& tokens);

  const Gpt2Options options_;
  Gpt2Embeddings embeddings_;
  std::vector<std::unique_ptr<nn::Block>> blocks_;
  Gpt2Head head_;
};

}  // namespace sg::models

// Llama (Touvron et al., 2023; Llama 3, 2024) and the families that differ from it by
// configuration alone, Mistral, Qwen2.5, Qwen3 and SmolLM2: pre-norm blocks with RMSNorm, causal
// attention with rotary positions and shared heads of keys and values, SwiGLU.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "models/language_model.h"
#include "nn/attention.h"
#include "nn/block.h"
#include "nn/layers.h"

namespace sg::models {

struct LlamaOptions {
  int64_t layers = 0, heads = 0, width = 0, hidden = 0, context = 0, vocab = 0;
  int64_t kv_heads = 0;    // 0: heads; divides heads
  int64_t head_width = 0;  // 0: width / heads; even
  RopeOptions rope = {};
  float norm_eps = 1e-5f;
  bool qkv_bias = false, out_bias = false, mlp_bias = false;
  bool qk_norm = false;  // RMSNorm of each head's queries and keys, as Qwen3 has
  int64_t window = 0;    // keys that a query sees at most, itself among them; 0: all
  bool tied = false;     // classifier and token embedding are one parameter
  uint64_t seed = 1;     // of the initial values
};

// The published sizes; another name is a usage error that lists them. nano's vocabulary is its
// tokenizer's: 0.
LlamaOptions llama_preset(const std::string& size);
const std::vector<std::string>& llama_sizes();
int64_t llama_parameters(const LlamaOptions& options);  // elements, a tied one once

class LlamaBlock final : public nn::Block {
 public:
  explicit LlamaBlock(const LlamaOptions& options);
  nn::RMSNorm norm1, norm2;
  nn::MultiHeadAttention attention;
  nn::GatedMLP mlp;

 private:
  nn::Residual compute(const nn::Residual& in, const Tensor& mask) override;
};

class LlamaEmbedding final : public nn::Module {
 public:
  explicit LlamaEmbedding(const LlamaOptions& options);
  Variable forward(const Tensor& tokens);  // (b,t) → (b,t,width)

  nn::Embedding tokens;
};

class LlamaHead final : public nn::Module {
 public:
  LlamaHead(const LlamaOptions& options, const Variable& embedding);
  Variable loss(const nn::Residual& in, const Tensor& targets);
  Variable logits(const nn::Residual& in, bool last_only);

  nn::RMSNorm norm;
  Variable weight;  // (vocab, width)
};

class Llama final : public LanguageModel {
 public:
  explicit Llama(const LlamaOptions& options);

  Variable loss(const Tensor& tokens, const Tensor& targets) override;
  Variable logits(const Tensor& tokens) override;
  Variable last_logits(const Tensor& tokens) override;
  int64_t context() const override { return options_.context; }
  int64_t vocab() const override { return options_.vocab; }
  const LlamaOptions& options() const { return options_; }

 private:
  nn::Residual trunk(const Tensor& tokens);

  const LlamaOptions options_;
  LlamaEmbedding embedding_;
  std::vector<std::unique_ptr<nn::Block>> blocks_;
  LlamaHead head_;
};

}  // namespace sg::models

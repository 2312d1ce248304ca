// What the shared driver asks of a model family that predicts the next token.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "nn/module.h"

namespace sg::models {

// A product that one training step computes `count` times: (batch, m, k)·(batch, k, n). The transposes say how the
// operands lie in memory: a (k, m) or b (n, k) seen turned.
struct Product {
  std::string name;
  int64_t batch = 1, m = 0, k = 0, n = 0;
  bool transpose_a = false, transpose_b = false;
  int64_t count = 1;
  double share = 1;  // of the product that is needed: a half of causal attention's

  double flops() const {  // of all `count`
    return 2.0 * static_cast<double>(batch * count) * static_cast<double>(m) * static_cast<double>(k) *
           static_cast<double>(n) * share;
  }
};

class LanguageModel : public nn::Module {
 public:
  // tokens, targets (b,t), i32 or i64, t ≤ context(); target −1 is ignored. The mean loss, one f32.
  virtual Variable loss(const Tensor& tokens, const Tensor& targets) = 0;
  virtual Variable logits(const Tensor& tokens) = 0;       // (b,t) → (b,t,vocab)
  virtual Variable last_logits(const Tensor& tokens) = 0;  // (b,t) → (b,vocab), of the last position

  virtual int64_t context() const = 0;
  virtual int64_t vocab() const = 0;

  // Every product of one forward and backward pass over `batch` sequences of `length` tokens.
  virtual std::vector<Product> products(int64_t batch, int64_t length) const = 0;
};

// Appends x·weightᵀ of a linear layer, x (rows, in), and its two backward products.
void append_linear(std::vector<Product>& products, const std::string& name, int64_t rows, int64_t in, int64_t out,
                   int64_t count);
// Appends the products of causal attention over (b, heads, t, d) and of its backward pass, a half of each needed.
void append_causal_attention(std::vector<Product>& products, int64_t batch_heads, int64_t length, int64_t head_width,
                             int64_t count);

}  // namespace sg::models

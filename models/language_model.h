// What the shared driver asks of a model family that predicts the next token.
#pragma once
#include <cstdint>

#include "nn/module.h"

namespace sg::models {

class LanguageModel : public nn::Module {
 public:
  // tokens, targets (b,t), i32 or i64, t ≤ context(); target −1 is ignored. The mean loss, one f32.
  virtual Variable loss(const Tensor& tokens, const Tensor& targets) = 0;
  virtual Variable logits(const Tensor& tokens) = 0;  // (b,t) → (b,t,vocab)
  virtual Variable last_logits(
      const Tensor& tokens) = 0;  // (b,t) → (b,vocab), of the last position

  virtual int64_t context() const = 0;
  virtual int64_t vocab() const = 0;
};

}  // namespace sg::models

// Losses as a training program names them; each is the mean over the batch, one value.
#pragma once
#include "autograd/ops.h"

namespace sg::nn {

// Cross-entropy of logits (…,v) with targets (…), i32 or i64; −1 is ignored.
inline Variable cross_entropy_loss(const Variable& logits, const Tensor& targets) {
  return cross_entropy(logits, targets);
}
// The mean square of prediction − target, which broadcast.
Variable mse_loss(const Variable& prediction, const Variable& target);
// Huber's loss: squared below `delta`, linear above.
Variable huber_loss(const Variable& prediction, const Variable& target, double delta = 1);

}  // namespace sg::nn

#include "nn/loss.h"

namespace sg::nn {

Variable mse_loss(const Variable& prediction, const Variable& target) {
  const Variable difference = prediction - target;
  return mean(difference * difference);
}

Variable huber_loss(const Variable& prediction, const Variable& target, double delta) {
  check(delta > 0, "huber_loss: delta must be positive: {}", delta);
  const Variable size = unary(PointwiseOp::abs, prediction - target);
  const Variable inner = minimum(size, Variable(full({1}, delta)));  // q: min(|d|, δ); loss: q·(|d| − q/2)
  return mean(inner * (size - inner * 0.5));
}

}  // namespace sg::nn

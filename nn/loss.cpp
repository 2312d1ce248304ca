#include "nn/loss.h"

#include <cmath>

namespace sg::nn {

Variable mse_loss(const Variable& prediction, const Variable& target) {
  const Variable difference = prediction - target;
  return mean(difference * difference);
}

Variable huber_loss(const Variable& prediction, const Variable& target, double delta) {
  check(delta > 0 && std::isfinite(delta), "huber_loss: delta must be positive: {}", delta);
  const Variable size = unary(PointwiseOp::abs, prediction - target);
  const Tensor bound =
      empty({1}, size.dtype(), size.device());  // as the others: their device need not be current
  fill_(bound, delta);
  const Variable inner = minimum(size, Variable(bound));  // q: min(|d|, δ); loss: q·(|d| − q/2)
  return mean(inner * (size - inner * 0.5));
}

}  // namespace sg::nn

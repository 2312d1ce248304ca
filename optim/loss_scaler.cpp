#include "optim/loss_scaler.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"

namespace sg::optim {
namespace {

constexpr double largest = 0x1p100;  // a loss times it is still an f32

}  // namespace

LossScaler::LossScaler(const LossScaleOptions& options) : options_(options) {
  check(options.fixed >= 0 && options.fixed <= largest,
        "loss scale: must lie in [0, 2^100] (0: dynamic): {}",
        options.fixed);
  check(options.initial_power >= 0 && options.initial_power <= 100,
        "loss scale: the first power of two must lie in [0, 100]: {}",
        options.initial_power);
  check(options.window >= 1 && options.hysteresis >= 1,
        "loss scale: window and hysteresis must be at least 1: {}, {}",
        options.window,
        options.hysteresis);
  check(options.minimum > 0 && options.minimum <= largest,
        "loss scale: the minimum must lie in (0, 2^100]: {}",
        options.minimum);
  const double initial = options.fixed > 0 ? options.fixed : std::ldexp(1.0, options.initial_power);
  state_ = {initial, -1, options.hysteresis};
}

void LossScaler::update(bool overflow, const std::string& culprits) {
  if (options_.fixed > 0)
    return;
  if (overflow)
    return overflowed(culprits);
  if (options_.consecutive_hysteresis)
    state_.hysteresis_left = options_.hysteresis;
  if (++state_.good < options_.window)
    return;
  state_ = {std::min(state_.scale * 2, largest), 0, options_.hysteresis};
}

void LossScaler::overflowed(const std::string& culprits) {
  state_.good = -1;
  if (state_.hysteresis_left > 1) {
    --state_.hysteresis_left;
    return;
  }
  check(ErrorKind::numeric,
        state_.scale > options_.minimum,
        "loss scale: gradients overflow at the smallest scale, {}{}{}; lower the learning rate or "
        "train in bf16",
        options_.minimum,
        culprits.empty() ? "" : ": ",
        culprits);
  state_.scale = std::max(state_.scale / 2, options_.minimum);
}

void LossScaler::restore(const State& state) {
  check(state.scale > 0 && std::isfinite(state.scale) && state.good >= -1 &&
            state.hysteresis_left >= 0,
        "loss scale: no state of a scaler: scale {}, {} good steps, {} overflows left",
        state.scale,
        state.good,
        state.hysteresis_left);
  state_ = state;
}

}  // namespace sg::optim

// The loss scale of f16 training: large enough that small gradients survive, lowered when large
// ones overflow.
#pragma once
#include <cstdint>
#include <string>

namespace sg::optim {

struct LossScaleOptions {
  double fixed = 0;  // above 0: that scale, always; 0: dynamic
  int initial_power = 16;
  int window = 1000;                    // good steps until the scale doubles, up to 2^100
  int hysteresis = 2;                   // overflows until it halves
  bool consecutive_hysteresis = false;  // a good step refills the hysteresis
  double minimum = 1;
};

class LossScaler {
 public:
  struct State {
    double scale = 1;
    int64_t good = -1;
    int hysteresis_left = 0;
    friend bool operator==(const State&, const State&) = default;
  };

  explicit LossScaler(const LossScaleOptions& options);  // usage error for values out of range

  // Multiplies the loss. Gradients are unscaled with the scale that multiplied their loss: read it
  // before backward, keep it.
  double scale() const { return state_.scale; }
  // What became of a step, told once a step and alike on every rank. Error numeric after an
  // overflow at the smallest scale; `culprits` names the parameters that overflowed.
  void update(bool overflow, const std::string& culprits = {});

  const State& state() const { return state_; }  // of checkpoints
  void restore(const State& state);              // usage error for one that no scaler can have

 private:
  void overflowed(const std::string& culprits);
  const LossScaleOptions options_;
  State state_;
};

}  // namespace sg::optim

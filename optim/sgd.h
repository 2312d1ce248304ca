// Stochastic gradient descent with momentum, plain or Nesterov's; without momentum it keeps no
// state.
#pragma once
#include "core/ops.h"
#include "optim/optimizer.h"

namespace sg::optim {

struct SgdSettings {
  double momentum = 0;
  bool nesterov = false;
};

class Sgd final : public Optimizer {
 public:
  Sgd(std::vector<ParameterGroup> groups, const SgdSettings& settings)
      : Optimizer(std::move(groups)), s_(settings) {
    check(
        !s_.nesterov || s_.momentum > 0, "sgd: nesterov needs a momentum above 0: {}", s_.momentum);
  }
  std::vector<std::string> state_names() const override {
    if (s_.momentum == 0)
      return {};
    return {"momentum"};
  }

 private:
  void apply(const Slice& slice, float lr, float weight_decay, float factor) override {
    check_state("sgd", slice, s_.momentum == 0 ? 0 : 1);
    sgd_(slice.master,
         slice.gradient,
         slice.state.empty() ? Tensor() : slice.state[0],
         slice.parameter,
         {.lr = lr,
          .momentum = static_cast<float>(s_.momentum),
          .weight_decay = weight_decay,
          .factor = factor,
          .nesterov = s_.nesterov,
          .first = t() == 1});
  }
  const SgdSettings s_;
};

}  // namespace sg::optim

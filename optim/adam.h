// Adam (Kingma & Ba, 2015) and AdamW (Loshchilov & Hutter, 2019): one fused pass over master,
// gradient and two moments.
#pragma once
#include <cmath>

#include "core/ops.h"
#include "optim/optimizer.h"

namespace sg::optim {

struct AdamSettings {
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  bool decoupled =
      true;  // AdamW: weights decay by themselves; else the decay is a part of the gradient
};

class Adam final : public Optimizer {
 public:
  Adam(std::vector<ParameterGroup> groups, const AdamSettings& settings)
      : Optimizer(std::move(groups)), s_(settings) {}
  std::vector<std::string> state_names() const override { return {"moment1", "moment2"}; }

 private:
  void apply(const Slice& slice, float lr, float weight_decay, float factor) override {
    check_state("adam", slice, 2);
    const auto beta1 = static_cast<float>(s_.beta1), beta2 = static_cast<float>(s_.beta2);
    // Of the betas as the moments are made with them: at 0.9999999 the two roundings would be a
    // sixth apart.
    const auto correction = [&](float beta) {
      return static_cast<float>(1 - std::pow(static_cast<double>(beta), static_cast<double>(t())));
    };
    adam_(slice.master,
          slice.gradient,
          slice.state[0],
          slice.state[1],
          slice.parameter,
          {.lr = lr,
           .beta1 = beta1,
           .beta2 = beta2,
           .eps = static_cast<float>(s_.eps),
           .weight_decay = weight_decay,
           .factor = factor,
           .correction1 = correction(beta1),
           .correction2 = correction(beta2),
           .decoupled = s_.decoupled,
           .first = t() == 1});
  }
  const AdamSettings s_;
};

}  // namespace sg::optim

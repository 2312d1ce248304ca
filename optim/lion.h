// Lion (Chen et al., 2023): the sign of an interpolated momentum.
#pragma once
#include "core/ops.h"
#include "optim/optimizer.h"

namespace sg::optim {

struct LionSettings {
  double beta1 = 0.9, beta2 = 0.99;
};

class Lion final : public Optimizer {
 public:
  Lion(std::vector<ParameterGroup> groups, const LionSettings& settings)
      : Optimizer(std::move(groups)), s_(settings) {}
  std::vector<std::string> state_names() const override { return {"momentum"}; }

 private:
  void apply(const Slice& slice, float lr, float weight_decay, float factor) override {
    check_state("lion", slice, 1);
    lion_(slice.master,
          slice.gradient,
          slice.state[0],
          slice.parameter,
          {.lr = lr,
           .beta1 = static_cast<float>(s_.beta1),
           .beta2 = static_cast<float>(s_.beta2),
           .weight_decay = weight_decay,
           .factor = factor});
  }
  const LionSettings s_;
};

}  // namespace sg::optim

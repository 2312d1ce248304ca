#include "optim/optimizer.h"

#include "core/ops.h"
#include "optim/adam.h"
#include "optim/lion.h"
#include "optim/sgd.h"

namespace sg::optim {

std::vector<Tensor> Optimizer::make_state(int64_t elements, Device device) const {
  CategoryScope scope(Category::optimizer);
  std::vector<Tensor> state;
  for (size_t i = 0; i < state_names().size(); ++i) {
    state.push_back(empty({elements}, DType::f32, device));
    fill_(state.back(), 0);
  }
  return state;
}

void Optimizer::step(std::span<const Slice> slices, float factor) {
  advance();
  for (const Slice& slice : slices) update(slice, factor);
}

void Optimizer::update(const Slice& slice, float factor) {
  invariant(t_ > 0, "optimizer: update came before advance");
  invariant(slice.group < groups_.size(), "optimizer: group {} of {}", slice.group, groups_.size());
  if (slice.master.numel() == 0) return;
  const ParameterGroup& group = groups_[slice.group];
  apply(slice, static_cast<float>(lr_ * group.lr_factor), static_cast<float>(group.weight_decay), factor);
}

std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& o) {
  const auto in_unit_interval = [](const char* name, double value) {
    check(0 <= value && value < 1, "optimizer: {} must lie in [0, 1): {}", name, value);
  };
  in_unit_interval("beta1", o.beta1);
  in_unit_interval("beta2", o.beta2);
  in_unit_interval("momentum", o.momentum);
  check(o.weight_decay >= 0, "optimizer: weight_decay must not be negative: {}", o.weight_decay);
  check(o.eps > 0, "optimizer: eps must be positive: {}", o.eps);
  std::vector<ParameterGroup> groups = {{.name = "decay", .weight_decay = o.weight_decay}, {.name = "no_decay"}};
  if (o.type == "adamw" || o.type == "adam") {
    const AdamSettings settings{.beta1 = o.beta1, .beta2 = o.beta2, .eps = o.eps, .decoupled = o.type == "adamw"};
    return std::make_unique<Adam>(std::move(groups), settings);
  }
  if (o.type == "sgd") return std::make_unique<Sgd>(std::move(groups), SgdSettings{o.momentum, o.nesterov});
  if (o.type == "lion") return std::make_unique<Lion>(std::move(groups), LionSettings{o.beta1, o.beta2});
  fail(ErrorKind::usage, "optimizer: unknown type '{}': adamw, adam, sgd, lion", o.type);
}

}  // namespace sg::optim

#include "optim/optimizer.h"

#include <cmath>

#include "core/ops.h"
#include "optim/adam.h"
#include "optim/lion.h"
#include "optim/sgd.h"

namespace sg::optim {

double checked_learning_rate(double lr) {
  check(lr >= 0 && std::isfinite(static_cast<float>(lr)),
        "optimizer: the learning rate must not be negative: {}",
        lr);
  return lr;
}

void Optimizer::check_state(const char* optimizer, const Slice& slice, size_t arrays) {
  check(slice.state.size() == arrays,
        "{}: {} arrays of state, not {}: make them with make_state",
        optimizer,
        slice.state.size(),
        arrays);
}

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
  for (const Slice& slice : slices)
    update(slice, factor);
}

void Optimizer::update(const Slice& slice, float factor) {
  invariant(t_ > 0, "optimizer: update came before advance");
  invariant(slice.group < groups_.size(), "optimizer: group {} of {}", slice.group, groups_.size());
  check(slice.master.defined() && slice.gradient.defined(),
        "optimizer: a slice without master or gradient");
  check(std::isfinite(factor) && factor >= 0,
        "optimizer: gradients can't be multiplied by {}",
        factor);
  if (slice.master.numel() == 0)
    return;
  const ParameterGroup& group = groups_[slice.group];
  check(group.weight_decay >= 0 && std::isfinite(group.weight_decay) && group.lr_factor >= 0 &&
            std::isfinite(group.lr_factor),
        "optimizer: group '{}': weight_decay {} and lr_factor {} must not be negative",
        group.name,
        group.weight_decay,
        group.lr_factor);
  apply(slice,
        static_cast<float>(lr_ * group.lr_factor),
        static_cast<float>(group.weight_decay),
        factor);
}

std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& o) {
  // As f32, which the update is computed in.
  const auto in_unit_interval = [](const char* name, double value) {
    check(0 <= value && static_cast<float>(value) < 1,
          "optimizer: {} must lie in [0, 1): {}",
          name,
          value);
  };
  in_unit_interval("beta1", o.beta1);
  in_unit_interval("beta2", o.beta2);
  in_unit_interval("momentum", o.momentum);
  check(o.weight_decay >= 0 && std::isfinite(o.weight_decay),
        "optimizer: weight_decay must not be negative: {}",
        o.weight_decay);
  check(static_cast<float>(o.eps) > 0 && std::isfinite(o.eps),
        "optimizer: eps must be positive: {}",
        o.eps);
  std::vector<ParameterGroup> groups = {{.name = "decay", .weight_decay = o.weight_decay},
                                        {.name = "no_decay"}};
  if (o.type == "adamw" || o.type == "adam") {
    const AdamSettings settings{
        .beta1 = o.beta1, .beta2 = o.beta2, .eps = o.eps, .decoupled = o.type == "adamw"};
    return std::make_unique<Adam>(std::move(groups), settings);
  }
  if (o.type == "sgd")
    return std::make_unique<Sgd>(std::move(groups), SgdSettings{o.momentum, o.nesterov});
  if (o.type == "lion")
    return std::make_unique<Lion>(std::move(groups), LionSettings{o.beta1, o.beta2});
  fail(ErrorKind::usage, "optimizer: unknown type '{}': adamw, adam, sgd, lion", o.type);
}

}  // namespace sg::optim

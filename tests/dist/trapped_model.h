// A model of two units in which an exception can be made to rise at any hook and any op.
#pragma once
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "autograd/backward.h"
#include "autograd/ops.h"
#include "core/ops.h"
#include "dist/engine.h"
#include "dist/launch.h"

namespace sg::dist::testing {

// Springs at the point with a given number, counted from when it was set.
class Trap {
 public:
  void set(int point) { left_ = point; }
  void pass(const std::string& where) {
    if (left_ > 0 && --left_ == 0)
      throw std::runtime_error("trap at " + where);
  }

 private:
  int left_ = 0;
};

// The message of what `f` throws; empty where it doesn't.
inline std::string caught_in(const std::function<void()>& f) {
  try {
    f();
  } catch (const std::exception& e) {
    return e.what();
  }
  return {};
}

// Ranks have a trap each. tied: the second unit uses the first one's parameter too.
class TrappedModel {
 public:
  static constexpr int64_t width = 40;  // a parameter is more than a chunk

  TrappedModel(Trap& trap, bool tied) : trap_(trap), tied_(tied) {
    for (Variable* p : {&a_, &b_})
      trap_gradient(*p, "first");
    units_ = {{"first", {a_}}, {"second", {b_}}};
    if (tied)
      units_[1].parameters.push_back(a_);
  }
  const std::vector<Unit>& units() const { return units_; }

  // After initialize: around every hook of the engine's, and behind its gradient hooks.
  void trap_hooks() {
    for (Unit& unit : units_) {
      UnitHooks& hooks = *unit.hooks;
      trap_hook(hooks.before_forward, unit.name + "'s before_forward");
      trap_hook(hooks.after_forward, unit.name + "'s after_forward");
      trap_hook(hooks.before_backward, unit.name + "'s before_backward");
      trap_hook(hooks.after_backward, unit.name + "'s after_backward");
    }
    for (Variable* p : {&a_, &b_})
      trap_gradient(*p, "last");
  }

  Variable loss(const Tensor& x) {
    trap_.pass("the closure's begin");
    Variable h =
        call_unit(units_[0].hooks, [&] { return op(tanh(op(linear(op(Variable(x)), a_)))); });
    h = op(h);
    h = call_unit(units_[1].hooks, [&] {
      Variable y = op(linear(op(h), b_));
      return tied_ ? op(linear(y, a_)) : y;
    });
    const Variable result = cast(mean(op(h * h)), DType::f32);
    trap_.pass("the closure's end");
    return result;
  }

  // A whole optimizer step on data of its number and the rank; the trap springs at a point of that
  // micro-step.
  StepResult step(Engine& engine, int rank, int trapped_micro_step = -1, int point = 0) {
    StepResult result;
    for (int j = 0; j < engine.options().micro_steps; ++j) {
      const auto number = static_cast<uint64_t>(engine.steps() * 64 + j * 8 + rank);
      const Tensor x =
          cast(random_uniform({2, width}, {.seed = 3, .op = number}), engine.options().precision);
      trap_.set(j == trapped_micro_step ? point : 0);
      engine.backward(engine.forward([&] { return loss(x); }));
      trap_.set(0);
      result = engine.step();
    }
    return result;
  }

 private:
  static Variable parameter(const std::string& name, uint64_t op) {
    CategoryScope scope(Category::parameters);
    return Variable(random_normal({width, width}, {.seed = 7, .op = op}, 0, 0.2f), true, name);
  }

  // Passes its input on, and a point in forward and one in backward.
  Variable op(const Variable& x) {
    trap_.pass("an op's forward");
    return record("trap", x.tensor(), {x}, [this](Tensor g) -> Gradients {
      trap_.pass("an op's backward");
      return {std::move(g)};
    });
  }

  void trap_hook(std::function<void()>& hook, const std::string& where) {
    hook = [this, where, own = std::move(hook)] {
      trap_.pass("before " + where);
      if (own)
        own();
      trap_.pass("after " + where);
    };
  }
  void trap_gradient(Variable& p, const std::string& which) {
    p.on_gradient([this, which](const Variable& leaf) {
      trap_.pass(which + " gradient hook of " + leaf.name());
    });
  }

  Trap& trap_;
  const bool tied_;
  Variable a_ = parameter("a", 1), b_ = parameter("b", 2);
  std::vector<Unit> units_;
};

}  // namespace sg::dist::testing

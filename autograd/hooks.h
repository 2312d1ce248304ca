// Units: what an engine sees of a model. nn::Module fills them; dist/ never includes nn/.
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "autograd/recompute_policy.h"
#include "autograd/variable.h"

namespace sg {

// Any may be empty. A call of the unit runs
//   before_forward, the unit's ops, after_forward,
// and a backward pass that reaches the call
//   before_backward, the ops' gradients (hooks of leaves fire among them), after_backward.
// after_backward comes with the last of the call's ops: its weights, frozen ones too, aren't read
// again by this call. Where an exception ends the call, or a pass between before_backward and
// after_backward, `undo` runs in the place of the hook that then doesn't come; it must not throw. A
// hook that throws has undone itself.
struct UnitHooks {
  std::function<void()> before_forward, after_forward, before_backward, after_backward, undo;
  // A call's results are recorded as its own even where none of its ops is, as in one that hands
  // its input through: its backward hooks fire wherever its results are used. A call's result is a
  // Variable or several in a vector.
  bool recorded = false;
  UnitRecompute recompute = {};  // of a block's calls; who calls them follows it
  bool any() const {
    return before_forward || after_forward || before_backward || after_backward || undo || recorded;
  }
};

// What a unit computes, its hooks included: what flows in, in the unit's own order, and what flows
// out to the next.
using UnitForward = std::function<std::vector<Variable>(std::span<const Variable> in)>;

// A part of a model that is gathered, run and released as one: a block, an embedding, a head.
struct Unit {
  std::string name;
  // Named, in registration order; a tied one is in every unit that uses it and belongs to the
  // first.
  std::vector<Variable> parameters;
  std::shared_ptr<UnitHooks> hooks = std::make_shared<UnitHooks>();
  // Writes the initial value of one of them into `out`, of its shape: for parameters on meta, which
  // an engine gives memory one by one, so that no device ever holds the whole model. Empty: they
  // have their values.
  std::function<void(const Variable& parameter, const Tensor& out)> initial = {};
  // For engines that call units themselves. Where all units of a model have one, what a unit gives
  // is what the next one takes, the last one taking the targets behind it, and the chain has the
  // bits of the model's own forward pass. Empty where the model alone knows how its units are
  // joined. It must not outlive its model.
  UnitForward forward = {};
  bool block = false;  // takes and gives what flows between units, and can be computed again
};

// One call of a unit in a graph; the ops recorded while its scope is the innermost on this thread
// belong to it.
struct UnitCall {
  std::shared_ptr<UnitHooks> hooks;
  int ops_left = 0;      // in the running pass
  bool started = false;  // in the running pass
  uint64_t pass = 0;     // the pass that the two belong to
};
class UnitScope {
 public:
  explicit UnitScope(std::shared_ptr<UnitHooks> hooks);
  ~UnitScope();
  UnitScope(const UnitScope&) = delete;
  UnitScope& operator=(const UnitScope&) = delete;

 private:
  std::shared_ptr<UnitCall> previous_;
};
const std::shared_ptr<UnitCall>& current_unit_call();  // null outside units

// Runs a unit's undo unless its call has come to its end.
class UnitUndo {
 public:
  explicit UnitUndo(const UnitHooks& hooks) : hooks_(hooks) {}
  ~UnitUndo() {
    if (!ended_ && hooks_.undo)
      hooks_.undo();
  }
  UnitUndo(const UnitUndo&) = delete;
  UnitUndo& operator=(const UnitUndo&) = delete;
  void call_ended() { ended_ = true; }

 private:
  const UnitHooks& hooks_;
  bool ended_ = false;
};

// Makes a result of the running unit call a node of it, whose gradient goes on unchanged.
void record_result(Variable& result);
inline void record_result(std::vector<Variable>& results) {
  for (Variable& result : results)
    record_result(result);
}
template <class Other>
void record_result(Other&) {}

// Runs a unit's forward with its hooks; costs one test where none is set.
template <class Forward>
auto call_unit(const std::shared_ptr<UnitHooks>& hooks, Forward&& forward) {
  if (!hooks || !hooks->any())
    return forward();
  if (hooks->before_forward)
    hooks->before_forward();
  UnitUndo undo(*hooks);
  auto result = [&] {
    UnitScope scope(hooks);
    auto computed = forward();
    if (hooks->recorded)
      record_result(computed);
    return computed;
  }();
  undo.call_ended();
  if (hooks->after_forward)
    hooks->after_forward();
  return result;
}

}  // namespace sg

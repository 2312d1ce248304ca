#include "autograd/hooks.h"

#include "autograd/backward.h"
#include "autograd/graph.h"

namespace sg {
namespace {

thread_local std::shared_ptr<UnitCall> innermost;

}  // namespace

UnitScope::UnitScope(std::shared_ptr<UnitHooks> hooks) : previous_(std::move(innermost)) {
  innermost = std::make_shared<UnitCall>();
  innermost->hooks = std::move(hooks);
}
UnitScope::~UnitScope() {
  innermost = std::move(previous_);
}

const std::shared_ptr<UnitCall>& current_unit_call() {
  return innermost;
}

void record_result(Variable& result) {
  if (!result.defined() || !is_float(result.dtype()))
    return;
  // The first run of a region: what the call hands through is a result of the region too, so that
  // backward runs the region, and with it the call, again.
  if (collecting_leaves())
    result = result.detach();
  if (!grad_enabled())
    return;
  result = Graph::add(
      "unit", result.tensor(), {&result, 1}, [](std::span<Tensor> gradient) -> Gradients {
        return {std::move(gradient[0])};
      });
}

}  // namespace sg

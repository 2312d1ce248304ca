#include "autograd/hooks.h"

namespace sg {
namespace {

thread_local std::shared_ptr<UnitCall> innermost;

}  // namespace

UnitScope::UnitScope(std::shared_ptr<UnitHooks> hooks) : previous_(std::move(innermost)) {
  innermost = std::make_shared<UnitCall>();
  innermost->hooks = std::move(hooks);
}
UnitScope::~UnitScope() { innermost = std::move(previous_); }

const std::shared_ptr<UnitCall>& current_unit_call() { return innermost; }

}  // namespace sg

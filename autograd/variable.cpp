#include "autograd/variable.h"

#include <algorithm>

#include "autograd/graph.h"
#include "core/ops.h"

namespace sg {
namespace {

thread_local bool recording = true;

// An undefined variable has nothing to ask for or to set.
void need(const Variable& x, const char* what) {
  check(x.defined(), "{}: the variable is undefined", what);
}

}  // namespace

Variable::Variable(Tensor value, bool requires_grad, std::string name)
    : state_(std::make_shared<VariableState>()) {
  check(value.defined(), "variable: the tensor is undefined");
  state_->tensor = std::move(value);
  state_->name = std::move(name);
  if (requires_grad)
    set_requires_grad(true);
}

const Tensor& Variable::tensor() const {
  const Tensor& value = held();
  if (state_->keeper) [[unlikely]]
    state_->keeper->before_read(*this, state_->keepers_number);
  return value;
}

const Tensor& Variable::held() const {
  need(*this, "tensor");
  return state_->tensor;
}

const std::string& Variable::name() const {
  need(*this, "name");
  return state_->name;
}
void Variable::set_name(std::string name) {
  need(*this, "set_name");
  state_->name = std::move(name);
}
bool Variable::is_leaf() const {
  need(*this, "is_leaf");
  return !state_->node;
}
bool Variable::requires_grad() const {
  return defined() && state_->requires_grad;
}

void Variable::set_requires_grad(bool on) {
  need(*this, "set_requires_grad");
  check(is_leaf(),
        "set_requires_grad: {} is the result of {}, not a leaf",
        shape(),
        is_leaf() ? "" : state_->node->op);
  check(!on || is_float(dtype()),
        "set_requires_grad: '{}' is {}: only floats have gradients",
        name(),
        name_of(dtype()));
  check(!state_->keeper || on == state_->requires_grad,
        "set_requires_grad: '{}' is {} by its engine since initialize; destroy the engine, set it, "
        "and initialize again",
        name(),
        state_->requires_grad ? "trained" : "kept frozen");
  state_->requires_grad = on;
}

Variable Variable::detach() const {
  need(*this, "detach");
  return Variable(tensor(), false, name());
}

void Variable::set_tensor(Tensor value) {
  need(*this, "set_tensor");
  check(is_leaf(), "set_tensor: {} is the result of an op, not a leaf", shape());
  check(value.defined() && value.shape() == shape(),
        "set_tensor: '{}' has shape {}, the new tensor {}",
        name(),
        shape(),
        value.shape());
  state_->tensor = std::move(value);
}

void Variable::set_keeper(LeafKeeper* keeper, int number) {
  need(*this, "set_keeper");
  check(is_leaf(), "set_keeper: {} is the result of an op, not a leaf", shape());
  state_->keeper = keeper;
  state_->keepers_number = number;
}

LeafKeeper* Variable::keeper() const {
  return defined() ? state_->keeper : nullptr;
}

const Tensor& Variable::grad() const {
  need(*this, "grad");
  return state_->gradient;
}

void Variable::set_grad(Tensor gradient) {
  need(*this, "set_grad");
  check(is_leaf(), "set_grad: {} is the result of an op; only leaves keep gradients", shape());
  check(!gradient.defined() || gradient.shape() == shape(),
        "set_grad: '{}' has shape {}, the gradient {}",
        name(),
        shape(),
        gradient.shape());
  state_->gradient = std::move(gradient);
}

void Variable::set_gradient_buffer(GradientBuffer provider) {
  need(*this, "set_gradient_buffer");
  check(is_leaf(),
        "set_gradient_buffer: {} is the result of an op; only leaves keep gradients",
        shape());
  state_->slot.set_buffer(std::move(provider));
}

bool Variable::has_gradient_buffer() const {
  need(*this, "has_gradient_buffer");
  return state_->slot.has_buffer();
}

Tensor Variable::gradient_buffer() const {
  need(*this, "gradient_buffer");
  return state_->slot.overwrite(*this);
}

uint64_t Variable::on_gradient(GradientHook hook) {
  need(*this, "on_gradient");
  check(is_leaf(), "on_gradient: {} is the result of an op; only leaves keep gradients", shape());
  const uint64_t id = state_->hooks.empty() ? 1 : state_->hooks.back().first + 1;
  state_->hooks.emplace_back(id, std::move(hook));
  return id;
}

void Variable::remove_hook(uint64_t id) {
  need(*this, "remove_hook");
  std::erase_if(state_->hooks, [id](const auto& entry) { return entry.first == id; });
}

bool grad_enabled() {
  return recording;
}
GradMode::GradMode(bool enabled) : previous_(std::exchange(recording, enabled)) {}
GradMode::~GradMode() {
  recording = previous_;
}

}  // namespace sg

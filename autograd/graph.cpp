// Recording: variables become nodes and edges.
#include "autograd/graph.h"

#include <algorithm>

#include "core/ops.h"
#include "core/trace.h"

namespace sg {
namespace {

thread_local uint64_t recorded = 0;  // the sequence of this thread's last op
thread_local std::vector<Variable>* collected = nullptr;

void collect(std::span<const Variable> inputs) {
  for (const Variable& x : inputs) {
    if (!x.requires_grad())
      continue;
    check(x.is_leaf(),
          "recompute: the region uses {}, a result from outside; pass it as the region's input",
          x.shape());
    if (std::find(collected->begin(), collected->end(), x) == collected->end())
      collected->push_back(x);
  }
}

}  // namespace

Edge edge_to(const Variable& x) {
  if (!x.requires_grad())
    return {};
  const auto& state = Graph::shared_state(x);
  if (state->node)
    return {state->node, state->result, nullptr};
  return {nullptr, 0, state->stands_for ? state->stands_for : state};
}

bool Graph::records(std::span<const Variable> inputs) {
  if (collecting_leaves())
    collect(inputs);
  return grad_enabled() && std::any_of(inputs.begin(), inputs.end(), [](const Variable& x) {
           return x.requires_grad();
         });
}

LeafCollector::LeafCollector(std::vector<Variable>& leaves)
    : previous_(std::exchange(collected, &leaves)) {}
LeafCollector::~LeafCollector() {
  collected = previous_;
}
bool collecting_leaves() {
  return collected && !grad_enabled();
}

Variable Graph::variable(std::shared_ptr<VariableState> state) {
  Variable x;
  x.state_ = std::move(state);
  return x;
}

namespace {

std::shared_ptr<Node> new_node(const char* op,
                               std::span<const Variable> inputs,
                               BackwardFunction f) {
  auto node = std::make_shared<Node>();
  node->op = op;
  node->backward = std::move(f);
  node->unit = current_unit_call();
  node->inputs.reserve(inputs.size());
  for (const Variable& x : inputs)
    node->inputs.push_back(edge_to(x));
  // Lamport, "Time, clocks, and the ordering of events in a distributed system", 1978: on one
  // thread they count up by one, and what another has recorded comes before what uses it.
  for (const Edge& edge : node->inputs) {
    if (edge.node)
      recorded = std::max(recorded, edge.node->sequence);
  }
  node->sequence = ++recorded;
  return node;
}

std::shared_ptr<VariableState> new_result(const std::shared_ptr<Node>& node, Tensor tensor) {
  check(tensor.defined(), "{}: the result is undefined", node->op);
  auto state = std::make_shared<VariableState>();
  state->requires_grad = true;
  state->node = node;
  state->result = node->results.size();
  node->results.push_back({tensor.shape(), tensor.dtype(), tensor.device()});
  state->tensor = std::move(tensor);
  return state;
}

}  // namespace

Variable Graph::add(const char* op,
                    Tensor out,
                    std::span<const Variable> inputs,
                    BackwardFunction f) {
  return variable(new_result(new_node(op, inputs, std::move(f)), std::move(out)));
}

std::vector<Variable> Graph::add(const char* op,
                                 std::vector<Tensor> out,
                                 std::span<const Variable> inputs,
                                 BackwardFunction f) {
  const std::shared_ptr<Node> node = new_node(op, inputs, std::move(f));
  std::vector<Variable> results;
  for (Tensor& tensor : out)
    results.push_back(variable(new_result(node, std::move(tensor))));
  return results;
}

Saved::Saved(const Variable& x) {
  if (!x.defined())
    return;
  wanted_ = x.requires_grad();
  const auto& remake = Graph::state(x).remake;
  if (remake && remake->unit == current_unit_call().get()) {
    remake_ = remake;
    return;
  }
  tensor_ = x.tensor();
  version_ = tensor_.version();
  if (x.is_leaf())
    leaf_ = Graph::shared_state(x);
}

bool Saved::defined() const {
  return remake_ || tensor_.defined();
}
const Shape& Saved::shape() const {
  return remake_ ? remake_->shape : tensor_.shape();
}
DType Saved::dtype() const {
  return remake_ ? remake_->dtype : tensor_.dtype();
}

const Tensor& Saved::tensor() const {
  if (remake_) {
    if (!remake_->made.defined()) {
      const trace::Span span("recompute");
      const RecomputeTimer timer;
      remake_->made = remake_->make();
    }
    return remake_->made;
  }
  if (tensor_.defined() && tensor_.version() != version_) [[unlikely]] {
    const std::string& name = leaf_ ? leaf_->name : tensor_.storage()->name();
    fail(ErrorKind::usage,
         "backward of {}: {} {} was changed in place after it was saved (version {} then, {} now): "
         "change a copy, or "
         "wait for backward",
         running_op(),
         name.empty() ? "a tensor" : "'" + name + "'",
         shape(),
         version_,
         tensor_.version());
  }
  return tensor_;
}

Tensor Contribution::take(Device device) {
  if (!writer_)
    return std::move(value_);
  Tensor out = empty(shape_, dtype_, device);
  writer_(out, false);
  writer_ = nullptr;
  return out;
}

void Contribution::write(const Tensor& out, bool accumulate) const {
  if (writer_)
    return writer_(out, accumulate);
  accumulate ? accumulate_(out, value_) : copy_(out, value_);
}

// A long chain goes one node at a time: recursion through the edges would use up the stack.
Node::~Node() {
  thread_local std::vector<std::shared_ptr<Node>> doomed;
  thread_local bool draining = false;
  for (Edge& edge : inputs) {
    if (edge.node && edge.node.use_count() == 1)
      doomed.push_back(std::move(edge.node));
  }
  if (draining)
    return;
  draining = true;
  while (!doomed.empty()) {
    const std::shared_ptr<Node> last = std::move(doomed.back());
    doomed.pop_back();
  }
  draining = false;
}

}  // namespace sg

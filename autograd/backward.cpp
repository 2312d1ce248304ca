// The backward engine: one pass over the ops behind a root, in the reverse of the order in which
// they were recorded.
#include "autograd/backward.h"

#include <algorithm>
#include <atomic>
#include <unordered_map>

#include "autograd/graph.h"
#include "core/ops.h"

namespace sg {
namespace {

// Adds to a gradient that isn't a parameter's; the bits don't depend on who else holds it.
void accumulate(Tensor& sum, Contribution contribution, Device device) {
  if (!sum.defined()) {
    sum = contribution.take(device);
  } else if (unique(sum)) {
    contribution.write(sum, true);
  } else if (contribution.lazy()) {
    sum = clone(sum);
    contribution.write(sum, true);
  } else {
    sum = add(sum, contribution.take(device));
  }
}

class Pass {
 public:
  explicit Pass(bool retain_graph)
      : retain_graph_(retain_graph), outer_(std::exchange(current_, this)) {}
  ~Pass() { current_ = outer_; }
  Pass(const Pass&) = delete;
  Pass& operator=(const Pass&) = delete;

  // `region`: the running node that the roots' graph was recorded in; null for the pass's own
  // graph.
  void run(std::vector<Variable> roots, std::vector<Tensor> gradients, Node* region);
  std::vector<Variable> complete_leaves() { return std::move(complete_); }
  void undo_units();  // those that it has entered and not left

  static Pass* current() { return current_; }
  Node* running() const { return running_; }

 private:
  struct Leaf {
    int uses_left = 0;
    Tensor gradient;  // of this pass
  };
  using Nodes = std::vector<std::shared_ptr<Node>>;

  void visit(const Edge& edge, Nodes& nodes);
  Nodes collect(std::span<const Variable> roots);
  void run(Node& node);
  void settle(Node& node);
  void add(const Edge& edge, Contribution contribution);
  void add_to_leaf(const std::shared_ptr<VariableState>& leaf, Contribution contribution);
  void use_done(const std::shared_ptr<VariableState>& leaf);
  void start_unit(Node& node);
  void finish_unit(Node& node);

  static thread_local Pass* current_;
  static std::atomic<uint64_t> passes_;
  const uint64_t id_ = ++passes_;
  const bool retain_graph_;
  Pass* const outer_;
  Node* running_ = nullptr;
  std::unordered_map<VariableState*, Leaf> leaves_;
  std::vector<Variable> complete_;
  std::vector<std::shared_ptr<UnitCall>> entered_;
};

thread_local Pass* Pass::current_ = nullptr;
std::atomic<uint64_t> Pass::passes_{0};

// ---- before the pass: which nodes, how many uses of each leaf, how many ops of each unit's call

void Pass::visit(const Edge& edge, Nodes& nodes) {
  if (edge.leaf)
    ++leaves_[edge.leaf.get()].uses_left;
  if (!edge.node || edge.node->pass == id_)
    return;
  Node& node = *edge.node;
  check(!node.dropped,
        "backward: {} was run backward before and dropped what it had saved; pass retain_graph, or "
        "run forward again",
        node.op);
  node.pass = id_;
  node.settled = false;
  node.gradients.assign(node.results.size(), {});
  if (UnitCall* unit = node.unit.get()) {
    if (unit->pass != id_)
      *unit = {unit->hooks, 0, false, id_};
    ++unit->ops_left;
  }
  nodes.push_back(edge.node);
}

Pass::Nodes Pass::collect(std::span<const Variable> roots) {
  Nodes nodes;
  for (const Variable& root : roots)
    visit(edge_to(root), nodes);
  for (size_t i = 0; i < nodes.size(); ++i) {
    for (const Edge& edge : nodes[i]->inputs)
      visit(edge, nodes);
  }
  std::sort(nodes.begin(), nodes.end(), [](const auto& a, const auto& b) {
    return a->sequence < b->sequence;
  });
  return nodes;
}

// ---- the pass

void Pass::run(std::vector<Variable> roots, std::vector<Tensor> gradients, Node* region) {
  Nodes nodes = collect(roots);
  if (region)
    settle(*region);  // the graph inside counts their uses from here on, one by one
  for (size_t i = 0; i < roots.size(); ++i) {
    const Edge edge = edge_to(roots[i]);
    if (gradients[i].defined())
      add(edge, std::move(gradients[i]));
    if (edge.leaf)
      use_done(edge.leaf);
  }
  roots.clear();  // their values aren't needed
  while (!nodes.empty()) {
    const std::shared_ptr<Node> node = std::move(nodes.back());
    nodes.pop_back();
    run(*node);
  }
}

void Pass::run(Node& node) {
  Node* const outer = std::exchange(running_, &node);
  Gradients contributions(node.inputs.size());
  std::vector<Tensor> gradients = std::move(node.gradients);
  if (std::any_of(
          gradients.begin(), gradients.end(), [](const Tensor& g) { return g.defined(); })) {
    start_unit(node);
    contributions = node.backward(gradients);
    check(contributions.size() == node.inputs.size(),
          "backward of {}: {} gradients for {} inputs",
          node.op,
          contributions.size(),
          node.inputs.size());
  }
  if (!retain_graph_) {  // before the contributions are used, so that what was saved only for them
                         // is theirs alone
    node.backward = nullptr;
    node.dropped = true;
  }
  // Leaves come last: their hooks may release weights that the other contributions still read.
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (node.inputs[i].node)
      add(node.inputs[i], std::move(contributions[i]));
  }
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (node.inputs[i].leaf)
      add(node.inputs[i], std::move(contributions[i]));
  }
  settle(node);
  finish_unit(node);
  if (!retain_graph_)
    node.inputs.clear();
  running_ = outer;
}

// Counts down the node's uses of leaves, each once; a leaf whose last use this was is complete.
void Pass::settle(Node& node) {
  if (std::exchange(node.settled, true))
    return;
  for (const Edge& edge : node.inputs) {
    if (edge.leaf)
      use_done(edge.leaf);
  }
}

void Pass::add(const Edge& edge, Contribution contribution) {
  if (!contribution.defined())
    return;
  const Shape& shape =
      edge.leaf ? edge.leaf->tensor.shape() : edge.node->results[edge.result].shape;
  const DType dtype = edge.leaf ? edge.leaf->tensor.dtype() : edge.node->results[edge.result].dtype;
  check(contribution.shape() == shape && contribution.dtype() == dtype,
        "backward of {}: the gradient is {} {}, its input {} {}",
        running_op(),
        name_of(contribution.dtype()),
        contribution.shape(),
        name_of(dtype),
        shape);
  const Device device =
      edge.leaf ? edge.leaf->tensor.device() : edge.node->results[edge.result].device;
  if (!contribution.lazy()) {
    const Device lies_on = contribution.value().device();
    check(lies_on == device,
          "backward of {}: the gradient lies on {}, its input on {}",
          running_op(),
          lies_on,
          device);
  }
  if (edge.leaf)
    return add_to_leaf(edge.leaf, std::move(contribution));
  accumulate(edge.node->gradients[edge.result], std::move(contribution), device);
}

void Pass::add_to_leaf(const std::shared_ptr<VariableState>& leaf, Contribution contribution) {
  Tensor& sum = leaves_[leaf.get()].gradient;
  if (sum.defined())
    return contribution.write(sum, true);
  sum = leaf->slot.first(Graph::variable(leaf), std::move(contribution));
}

void Pass::use_done(const std::shared_ptr<VariableState>& leaf) {
  Leaf& progress = leaves_[leaf.get()];
  if (--progress.uses_left > 0 || !progress.gradient.defined())
    return;
  Tensor gradient = std::move(progress.gradient);
  if (leaf->gradient.defined() && !leaf->slot.has_buffer()) {
    accumulate_(leaf->gradient, gradient);
  } else {
    leaf->gradient = std::move(gradient);
  }
  complete_.push_back(Graph::variable(leaf));
  const auto hooks = leaf->hooks;  // a hook may remove itself
  for (const auto& [id, hook] : hooks)
    hook(complete_.back());
}

void Pass::start_unit(Node& node) {
  UnitCall* unit = node.unit.get();
  if (!unit || std::exchange(unit->started, true))
    return;
  if (unit->hooks->before_backward)
    unit->hooks->before_backward();
  entered_.push_back(node.unit);
}

void Pass::finish_unit(Node& node) {
  UnitCall* unit = node.unit.get();
  if (!unit || --unit->ops_left > 0 || !unit->started)
    return;
  std::erase(entered_, node.unit);
  if (unit->hooks->after_backward)
    unit->hooks->after_backward();
}

void Pass::undo_units() {
  for (; !entered_.empty(); entered_.pop_back()) {
    const UnitHooks& hooks = *entered_.back()->hooks;
    if (hooks.undo)
      hooks.undo();
  }
}

void check_seed(const Variable& root, const Tensor& seed) {
  check(root.defined(), "backward: the root is undefined");
  check(root.requires_grad(),
        "backward: no gradient path: the root {} came from no variable that requires a gradient, "
        "or was computed under "
        "NoGrad",
        root.shape());
  check(seed.defined() || root.numel() == 1,
        "backward: the root {} has several elements: give a seed of its shape",
        root.shape());
  check(!seed.defined() || (seed.shape() == root.shape() && seed.dtype() == root.dtype()),
        "backward: the seed is {} {}, the root {} {}",
        name_of(seed.dtype()),
        seed.shape(),
        name_of(root.dtype()),
        root.shape());
  if (!seed.defined())
    return;
  check(seed.device() == root.device(),
        "backward: the seed lies on {}, the root on {}",
        seed.device(),
        root.device());
}

}  // namespace

std::vector<Variable> backward(const Variable& root, const BackwardOptions& options) {
  check_seed(root, options.seed);
  NoGrad guard;
  Tensor seed = options.seed;
  if (!seed.defined()) {
    seed = empty(root.shape(), root.dtype(), root.device());
    fill_(seed, 1);
  }
  Pass pass(options.retain_graph);
  try {
    pass.run({root}, {std::move(seed)}, nullptr);
  } catch (...) {
    pass.undo_units();
    throw;
  }
  return pass.complete_leaves();
}

Variable running_input(size_t i, const Tensor& value) {
  const Pass* const pass = Pass::current();
  invariant(pass && pass->running(), "running_input: no backward function is running");
  const Edge& edge = pass->running()->inputs[i];
  auto state = std::make_shared<VariableState>();
  state->tensor = value;
  state->requires_grad = edge.node || edge.leaf;
  state->node = edge.node;
  state->result = edge.result;
  state->stands_for = edge.leaf;
  return Graph::variable(std::move(state));
}

void backward_inside(std::vector<Variable> roots, std::vector<Tensor> gradients) {
  Pass* const pass = Pass::current();
  invariant(pass && pass->running(),
            "backward_inside: no backward function is running on this thread");
  pass->run(std::move(roots), std::move(gradients), pass->running());
}

const char* running_op() {
  const Pass* const pass = Pass::current();
  return pass && pass->running() ? pass->running()->op : "no op";
}

}  // namespace sg

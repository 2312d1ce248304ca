// The graph behind the handles. Internal to autograd/*.cpp.
#pragma once
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "autograd/backward.h"
#include "autograd/gradient_slot.h"
#include "autograd/hooks.h"

namespace sg {

// Where a gradient goes on to: a result of a node, or a leaf; neither where the input needs no
// gradient.
struct Edge {
  std::shared_ptr<Node> node;
  size_t result = 0;
  std::shared_ptr<VariableState> leaf;
};

// A recorded op. It holds no values but those that its backward function saved.
struct Node {
  struct Result {
    Shape shape;
    DType dtype;
    Device device;
  };
  const char* op = nullptr;
  uint64_t sequence = 0;  // in recording order; above its inputs', whichever threads recorded them
  std::vector<Edge> inputs;
  std::vector<Result> results;
  BackwardFunction backward;
  bool dropped = false;  // a pass has run it and freed what it saved
  std::shared_ptr<UnitCall> unit;

  // State of the pass that visited it last.
  uint64_t pass = 0;
  std::vector<Tensor> gradients;  // of the results
  bool settled = false;           // its uses of leaves are counted down

  Node() = default;
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;
  ~Node();
};

// How backward makes a result of an op again, for ops of the same unit's call that read it.
struct Remake {
  Shape shape;
  DType dtype;
  const UnitCall* unit = nullptr;
  std::function<Tensor()> make;
  Tensor made;  // once some op has asked for it
};

struct VariableState {
  Tensor tensor;
  std::string name;
  bool requires_grad = false;
  std::shared_ptr<Node> node;  // null: a leaf
  size_t result = 0;

  // Leaves.
  LeafKeeper* keeper = nullptr;
  int keepers_number = 0;
  Tensor gradient;
  GradientSlot slot;
  std::vector<std::pair<uint64_t, GradientHook>> hooks;
  // Stands for that leaf with a value of its own: the input of a region that is computed again.
  std::shared_ptr<VariableState> stands_for;

  std::shared_ptr<Remake> remake;  // of an op's result; null: ops that save it keep the tensor
};

// The op whose backward function is running on this thread, for messages.
const char* running_op();

// While it lives, leaves that need a gradient and are used on this thread by ops that aren't
// recorded are added to `leaves`, each once.
class LeafCollector {
 public:
  explicit LeafCollector(std::vector<Variable>& leaves);
  ~LeafCollector();
  LeafCollector(const LeafCollector&) = delete;
  LeafCollector& operator=(const LeafCollector&) = delete;

 private:
  std::vector<Variable>* const previous_;
};

bool collecting_leaves();

Edge edge_to(const Variable& x);

// ---- within a running backward function
// Its i-th input with this value: what is computed of it adds to that input's gradient at once.
Variable running_input(size_t i, const Tensor& value);
// Runs graphs that were recorded inside, as a part of the pass. The running op's inputs are what
// these graphs use: from now on each of their uses counts by itself. gradients[i] belongs to
// roots[i].
void backward_inside(std::vector<Variable> roots, std::vector<Tensor> gradients);

// ---- recompute.cpp
bool remakes();  // a RemakeScope lives on this thread
class RecomputeTimer {
 public:
  RecomputeTimer();
  ~RecomputeTimer();
  RecomputeTimer(const RecomputeTimer&) = delete;
  RecomputeTimer& operator=(const RecomputeTimer&) = delete;

 private:
  using clock = std::chrono::steady_clock;
  const bool outermost_;
  const clock::time_point begin_;
};
// In a RemakeScope: `make` makes x, a result that an op has just recorded, again.
template <class Make>
void set_remake(Variable& x, Make&& make) {
  if (!remakes() || !Graph::state(x).node)
    return;
  const UnitCall* const unit = current_unit_call().get();
  auto remake = std::make_shared<Remake>();
  *remake = {x.shape(), x.dtype(), unit, std::forward<Make>(make), {}};
  Graph::state(x).remake = std::move(remake);
}

}  // namespace sg

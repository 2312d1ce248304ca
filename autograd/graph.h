// The graph behind the handles. Internal to autograd/*.cpp.
#pragma once
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
  size_t unsettled = 0;           // its uses of leaves are counted down from this input on

  Node() = default;
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;
  ~Node();
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
  bool activation = false;  // the input of a recomputed region: its gradient is an activation's and
                            // isn't reported
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

// Runs graphs that were recorded inside a running backward function, as a part of its pass. The
// running op's inputs from the second on are leaves that these graphs use: from now on each of
// their uses counts by itself. gradients[i] belongs to roots[i].
void backward_inside(std::span<const Variable> roots, std::span<const Tensor> gradients);

}  // namespace sg

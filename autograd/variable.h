// Variable: a tensor that remembers how it was computed. A handle: copies are the same variable,
// and == is identity.
//
// A leaf was made by the user (a parameter, an input); every other variable came out of a recorded
// op. Threads may record parts of one graph one after the other (a join or a lock between them);
// one backward pass at a time runs over it, on any thread. Gradients are tensors, never variables:
// there is no gradient of a gradient.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "core/tensor.h"

namespace sg {

struct Node;           // a recorded op (backward.h)
struct VariableState;  // what the handles share
class Variable;

// An engine that keeps the values of leaves somewhere else at times.
class LeafKeeper {
 public:
  // The value of the leaf that it gave this number is about to be read: on return it is there, else
  // an error says why.
  virtual void before_read(const Variable& leaf, int number) = 0;
  // Another keeper takes its leaves: on return they are nobody's and have their values, as far as
  // those can be had.
  virtual void hand_over() = 0;

 protected:
  ~LeafKeeper() = default;
};

using GradientHook = std::function<void(const Variable& leaf)>;
using GradientBuffer = std::function<Tensor()>;

class Variable {
 public:
  Variable() = default;  // undefined
  explicit Variable(Tensor value, bool requires_grad = false, std::string name = {});

  bool defined() const { return state_ != nullptr; }
  const Tensor& tensor() const;  // to be read: a leaf's keeper is told before
  const Tensor& held() const;    // the same without telling it: for shape and place
  const Shape& shape() const { return held().shape(); }
  int rank() const { return held().rank(); }
  int64_t size(int d) const { return held().size(d); }
  int64_t numel() const { return held().numel(); }
  DType dtype() const { return held().dtype(); }
  Device device() const { return held().device(); }
  template <class T = float>
  T item() const {
    return tensor().item<T>();
  }

  const std::string& name() const;  // for messages; empty unless set
  void set_name(std::string name);
  bool is_leaf() const;
  bool requires_grad() const;
  // Leaves of a float dtype only. Usage error for one that has a keeper, which has settled what is
  // trained.
  void set_requires_grad(bool on);
  Variable detach() const;  // a leaf that shares the tensor and needs no gradient

  // Re-points a leaf at another tensor of its shape (a view of a flat space, a 16-bit copy). A
  // tensor saved before the change stays what it was.
  void set_tensor(Tensor value);

  void set_keeper(LeafKeeper* keeper, int number = 0);  // null: nobody's
  LeafKeeper* keeper() const;

  // ---- a leaf's gradient: undefined until a backward pass reached the leaf; each pass adds to
  // what is there
  const Tensor& grad() const;
  void set_grad(Tensor gradient);
  void zero_grad() { set_grad({}); }  // drops it: the next pass writes a fresh one

  // Where a pass writes this leaf's gradient: a dense tensor of the leaf's shape and dtype, asked
  // for when the first contribution arrives, its contents overwritten; before that in forward, if
  // an op makes its contribution there (ExpectedSeed, ops.h). grad() is then that tensor, and
  // adding passes up is the provider's business. Without a provider a pass makes a buffer of its
  // own. An empty function takes the provider away.
  void set_gradient_buffer(GradientBuffer provider);
  bool has_gradient_buffer() const;
  // Asks for that buffer, to overwrite it. A contribution that lies there since forward is saved
  // first: it moves to memory of its own.
  Tensor gradient_buffer() const;

  // Called once a pass, when the last contribution has been added and grad() is complete. A tied
  // parameter is complete once; a leaf that no contribution reached isn't reported. Hooks run in
  // the order they were added.
  uint64_t on_gradient(GradientHook hook);
  void remove_hook(uint64_t id);

  friend bool operator==(const Variable& a, const Variable& b) { return a.state_ == b.state_; }
  const void* id() const { return state_.get(); }  // a key for maps

 private:
  friend class Graph;
  std::shared_ptr<VariableState> state_;
};

// Ops record nothing on this thread while a NoGrad lives; WithGrad turns recording on again inside.
bool grad_enabled();
class GradMode {
 public:
  explicit GradMode(bool enabled);
  ~GradMode();
  GradMode(const GradMode&) = delete;
  GradMode& operator=(const GradMode&) = delete;

 private:
  bool previous_;
};
struct NoGrad : GradMode {
  NoGrad() : GradMode(false) {}
};
struct WithGrad : GradMode {
  WithGrad() : GradMode(true) {}
};

}  // namespace sg

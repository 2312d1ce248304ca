// Recording ops and running them backward.
//
//   Variable square(const Variable& x) {
//     return record("square", mul(x.tensor(), x.tensor()), {x}, [x = Saved(x)](const Tensor& g) ->
//     Gradients {
//       return {scale(mul(g, x.tensor()), 2)};                    // one contribution per input, in
//       the inputs' order
//     });
//   }
#pragma once
#include <initializer_list>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "autograd/variable.h"

namespace sg {

// What an op adds to the gradient of one of its inputs: nothing, a tensor, or a writer that
// computes it where it is wanted, such as straight into a bucket of gradients, so that no buffer of
// its own exists.
class Contribution {
 public:
  using Writer =
      std::function<void(const Tensor& out, bool accumulate)>;  // out dense; accumulate adds to it

  Contribution() = default;                                 // nothing
  Contribution(Tensor value) : value_(std::move(value)) {}  // undefined: nothing
  Contribution(const Shape& shape, DType dtype, Writer writer)
      : shape_(shape), dtype_(dtype), writer_(std::move(writer)) {}

  bool defined() const { return value_.defined() || writer_; }
  bool lazy() const { return static_cast<bool>(writer_); }
  const Shape& shape() const { return lazy() ? shape_ : value_.shape(); }
  DType dtype() const { return lazy() ? dtype_ : value_.dtype(); }

  const Tensor& value() const { return value_; }  // undefined where lazy
  Tensor take(Device device);  // as a tensor; a lazy one is written into a new one on `device`
  void write(const Tensor& out, bool accumulate) const;  // into a dense tensor

 private:
  Tensor value_;
  Shape shape_;
  DType dtype_ = DType::f32;
  Writer writer_;
};
using Gradients = std::vector<Contribution>;

struct Remake;  // graph.h

// A tensor kept for backward. Reading it checks that nothing changed it in place since; its memory
// may have been released and gathered again in between. Holds no variable, so it keeps no graph
// alive.
class Saved {
 public:
  Saved() = default;  // undefined
  Saved(const Variable& x);
  Saved(const Tensor& x) : tensor_(x), version_(x.defined() ? x.version() : 0) {}

  bool defined() const;
  bool wanted() const { return wanted_; }  // the variable needs a gradient
  const Shape& shape() const;
  DType dtype() const;
  // Usage error naming the running op and the variable if the tensor was changed in place.
  const Tensor& tensor() const;

 private:
  Tensor tensor_;
  uint64_t version_ = 0;
  bool wanted_ = false;
  std::shared_ptr<VariableState> leaf_;  // for its name; null for results of ops
  std::shared_ptr<Remake> remake_;       // in the place of the tensor (RemakeScope, recompute.h)
};

// Makes `out` a variable that came from `inputs` (undefined ones are allowed). `backward` takes the
// gradient of out and returns one contribution per input; it is dropped unless recording is on and
// an input needs a gradient. Taken by value, that gradient is its own: what it computes may go into
// the same memory. `op` is a literal.
template <class Backward>
Variable record(const char* op, Tensor out, std::span<const Variable> inputs, Backward&& backward);
template <class Backward>
Variable record(const char* op,
                Tensor out,
                std::initializer_list<Variable> inputs,
                Backward&& backward) {
  return record(op,
                std::move(out),
                std::span(inputs.begin(), inputs.size()),
                std::forward<Backward>(backward));
}
// Several results: `backward` takes a span of their gradients, its own, undefined where none
// arrived.
template <class Backward>
std::vector<Variable> record_all(const char* op,
                                 std::vector<Tensor> out,
                                 std::span<const Variable> inputs,
                                 Backward&& backward);

// A user's op: an object with  Tensor forward(const Variable&...)  and  Gradients backward(const
// Tensor&) const. forward runs without recording and keeps what backward needs in members of type
// Saved.
template <class Function, class... Inputs>
Variable apply(const char* op, Function function, const Inputs&... inputs);

struct BackwardOptions {
  Tensor seed = {};           // ∂/∂root; 1 where undefined, for a root of one element only
  bool retain_graph = false;  // else every op is dropped as soon as it has run
};
// Adds ∂root/∂leaf to every leaf that root was computed from, ops in the reverse of the order in
// which they were recorded. Returns the leaves that got a gradient, in the order in which they were
// complete: a parameter that isn't there was unused. Errors: no gradient path, a seed of another
// shape or dtype, a root of several elements without one, a graph already dropped.
std::vector<Variable> backward(const Variable& root, const BackwardOptions& options = {});

// ---- underneath
using BackwardFunction = std::function<Gradients(std::span<Tensor> gradients)>;

class Graph {
 public:
  // True where an op of these inputs must be recorded.
  static bool records(std::span<const Variable> inputs);
  static std::vector<Variable> add(const char* op,
                                   std::vector<Tensor> out,
                                   std::span<const Variable> inputs,
                                   BackwardFunction f);
  static Variable add(const char* op,
                      Tensor out,
                      std::span<const Variable> inputs,
                      BackwardFunction f);
  static VariableState& state(const Variable& x) { return *x.state_; }
  static const std::shared_ptr<VariableState>& shared_state(const Variable& x) { return x.state_; }
  static Variable variable(std::shared_ptr<VariableState> state);
};

template <class Backward>
Variable record(const char* op, Tensor out, std::span<const Variable> inputs, Backward&& backward) {
  if (!Graph::records(inputs))
    return Variable(std::move(out));
  return Graph::add(op,
                    std::move(out),
                    inputs,
                    [f = std::forward<Backward>(backward)](std::span<Tensor> g) -> Gradients {
                      return f(std::move(g[0]));
                    });
}

template <class Backward>
std::vector<Variable> record_all(const char* op,
                                 std::vector<Tensor> out,
                                 std::span<const Variable> inputs,
                                 Backward&& backward) {
  if (!Graph::records(inputs)) {
    std::vector<Variable> results;
    for (Tensor& tensor : out)
      results.emplace_back(std::move(tensor));
    return results;
  }
  return Graph::add(op, std::move(out), inputs, std::forward<Backward>(backward));
}

template <class Function, class... Inputs>
Variable apply(const char* op, Function function, const Inputs&... inputs) {
  auto shared = std::make_shared<Function>(std::move(function));
  Tensor out = [&] {
    NoGrad guard;
    return shared->forward(inputs...);
  }();
  return record(op, std::move(out), {inputs...}, [shared](const Tensor& g) -> Gradients {
    return shared->backward(g);
  });
}

}  // namespace sg

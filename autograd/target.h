// What the ops share: their inputs' check, and where a gradient goes, for ops that keep only its
// shape. Internal to autograd/ops_*.cpp.
#pragma once
#include "autograd/backward.h"
#include "core/ops.h"

namespace sg {

// What an op needs must be there: an undefined variable is named before its tensor is asked for.
struct Input {
  const char* name;
  const Variable* variable;
};
inline void check_defined(const char* op, std::initializer_list<Input> inputs) {
  for (const Input& input : inputs)
    check(input.variable->defined(), "{}: {} is undefined", op, input.name);
}

struct Target {
  Shape shape;
  DType dtype = DType::f32;
  bool wanted = false;

  explicit Target(const Variable& x) : wanted(x.requires_grad()) {
    if (!x.defined())
      return;
    shape = x.shape();
    dtype = x.dtype();
  }
  explicit Target(const Saved& x) : shape(x.shape()), dtype(x.dtype()), wanted(x.wanted()) {}

  // A gradient of the op's own shape and dtype, brought back to the input's.
  Contribution sum(const Tensor& g) const {
    if (!wanted)
      return {};
    return cast(sum_to(g, shape), dtype);
  }
  // The same of what `f` computes, which is left out where nobody wants it.
  template <class F>
  Contribution sum_of(F&& f) const {
    if (!wanted)
      return {};
    return sum(f());
  }
};

}  // namespace sg

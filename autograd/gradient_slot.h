// Where a leaf's gradient comes to lie. Internal to autograd/*.cpp.
//
// An engine may give a leaf a buffer (Variable::set_gradient_buffer): the first contribution of a
// pass is written there. An op that makes its contribution in forward already may write it there
// early; whatever else is written into the buffer before backward asks for that contribution first
// saves it, by moving it to memory of its own.
#pragma once
#include <memory>

#include "autograd/backward.h"

namespace sg {

class GradientSlot {
 public:
  bool has_buffer() const { return buffer_ != nullptr; }
  void set_buffer(GradientBuffer provider) { buffer_ = std::move(provider); }

  // The buffer, to be overwritten. Usage error unless it is dense, of the leaf's shape and dtype.
  Tensor overwrite(const Variable& leaf);
  // The buffer, for a contribution made in forward. The op keeps the handle until its backward
  // function returns the tensor: that is where the contribution lies by then.
  std::shared_ptr<Tensor> write_early(const Variable& leaf);
  // A pass's first contribution: in the buffer, where it may lie since forward; without one the
  // contribution itself where that is nobody else's, or new memory.
  Tensor first(const Variable& leaf, Contribution contribution);

 private:
  GradientBuffer buffer_;
  std::weak_ptr<Tensor> early_;
};

}  // namespace sg

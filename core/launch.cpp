#include "core/launch.h"

#include "core/ops.h"

namespace sg::detail {

void check_device(const char* op, std::initializer_list<const Tensor*> tensors) {
  const Tensor* first = nullptr;
  for (const Tensor* t : tensors) {
    if (!t->defined()) continue;
    if (!first) first = t;
    check(t->device() == first->device(), "{}: tensors on different devices: {} and {}", op, first->device(),
          t->device());
  }
}

void check_same_dtype(const char* op, std::initializer_list<const Tensor*> tensors) {
  const Tensor* first = nullptr;
  for (const Tensor* t : tensors) {
    if (!t->defined()) continue;
    if (!first) first = t;
    check(t->dtype() == first->dtype(), "{}: dtypes differ: {} and {}", op, name_of(first->dtype()),
          name_of(t->dtype()));
  }
}

void check_integers(const char* op, const char* what, const Tensor& x) {
  check(x.dtype() == DType::i32 || x.dtype() == DType::i64, "{}: {} must be i32 or i64, not {}", op, what,
        name_of(x.dtype()));
}

Scratch::Scratch(Device device, size_t bytes) {
  if (bytes == 0) return;
  CategoryScope scope(Category::workspace);
  buffer_ = empty({static_cast<int64_t>(bytes)}, DType::u8, device);
}

Scratch::operator Workspace() const {
  if (!buffer_.defined()) return {};
  return {buffer_.view().data, static_cast<size_t>(buffer_.numel())};
}

Tensor as_rows(const Tensor& x) {
  check(x.rank() >= 1, "a tensor of at least one dimension is needed: {}", x.shape());
  const int64_t n = x.size(-1);
  return contiguous(x).reshape({n > 0 ? x.numel() / n : 0, n});
}

View view_or_null(const Tensor& x) { return x.defined() ? x.view() : View{}; }

DType statistics_dtype(DType x) { return x == DType::f64 ? DType::f64 : DType::f32; }

Shape without_last(const Shape& shape) {
  Shape out = shape;
  out.erase(-1);
  return out;
}

}  // namespace sg::detail

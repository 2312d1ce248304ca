#include "core/launch.h"

#include <utility>

#include "core/ops.h"

namespace sg::detail {

void check_arguments(const char* op,
                     std::initializer_list<Argument> needed,
                     std::initializer_list<Argument> optional) {
  const Argument* first = nullptr;
  const auto one_device = [&](const Argument& a) {
    if (!first)
      first = &a;
    check(a.tensor->device() == first->tensor->device(),
          "{}: tensors on different devices: {} on {} and {} on {}",
          op,
          first->name,
          first->tensor->device(),
          a.name,
          a.tensor->device());
  };
  for (const Argument& a : needed) {
    check(a.tensor->defined(), "{}: {} is undefined", op, a.name);
    one_device(a);
  }
  for (const Argument& a : optional) {
    if (a.tensor->defined())
      one_device(a);
  }
}

void check_same_dtype(const char* op, std::initializer_list<const Tensor*> tensors) {
  const Tensor* first = nullptr;
  for (const Tensor* t : tensors) {
    if (!t->defined())
      continue;
    if (!first)
      first = t;
    check(t->dtype() == first->dtype(),
          "{}: dtypes differ: {} and {}",
          op,
          name_of(first->dtype()),
          name_of(t->dtype()));
  }
}

void check_integers(const char* op, const char* what, const Tensor& x) {
  check(x.dtype() == DType::i32 || x.dtype() == DType::i64,
        "{}: {} must be i32 or i64, not {}",
        op,
        what,
        name_of(x.dtype()));
}

void check_writable(const char* op, const Tensor& x) {
  if (x.numel() == 0)
    return;
  for (int d = 0; d < x.rank(); ++d) {
    check(x.size(d) <= 1 || x.strides()[d] != 0,
          "{}: the output {} has strides {}: its elements lie on one another (write into a dense "
          "copy)",
          op,
          x.shape(),
          x.strides());
  }
}

namespace {

// "(1, 2)": where element i of a dense tensor of this shape lies.
Dims position_of(int64_t i, const Shape& shape) {
  Dims position = shape;
  for (int d = shape.rank() - 1; d >= 0; --d) {
    position.set(d, i % shape[d]);
    i /= shape[d];
  }
  return position;
}

int64_t value_at(const Tensor& x, int64_t i) {
  return x.dtype() == DType::i64 ? x.data<int64_t>()[i] : x.data<int32_t>()[i];
}

}  // namespace

void check_indices(
    const char* op, const char* what, const Tensor& x, int64_t size, const char* minus_one) {
  check_integers(op, what, x);
  const auto find = kernel(op, x.device(), &KernelTable::find_outside, x.dtype());
  if (x.numel() == 0)
    return;
  const Tensor dense = contiguous(x).flatten();
  int64_t found = -1;
  const View first{.data = &found, .dtype = DType::i64, .rank = 0};
  launch("check_indices", x.device(), [&](StreamHandle s) {
    find(dense.view(), minus_one ? -1 : 0, size, first, s);
  });
  if (found < 0)
    return;
  fail(ErrorKind::usage,
       "{}: {} {} at position {} isn't in [0, {}){}",
       op,
       what,
       value_at(dense, found),
       position_of(found, x.shape()),
       size,
       minus_one ? fmt::format(" and isn't -1, which {}", minus_one) : "");
}

bool overlap(const Tensor& a, const Tensor& b) {
  if (a.storage() != b.storage() || a.numel() == 0 || b.numel() == 0)
    return false;
  const auto range = [](const Tensor& x) {  // strides are never negative
    int64_t last = x.offset();
    for (int d = 0; d < x.rank(); ++d)
      last += (x.size(d) - 1) * x.strides()[d];
    const auto item = static_cast<int64_t>(size_of(x.dtype()));
    return std::pair(x.offset() * item, (last + 1) * item);
  };
  const auto [a_begin, a_end] = range(a);
  const auto [b_begin, b_end] = range(b);
  return a_begin < b_end && b_begin < a_end;
}

Scratch::Scratch(Device device, size_t bytes) {
  if (bytes == 0)
    return;
  CategoryScope scope(Category::workspace);
  buffer_ = empty({static_cast<int64_t>(bytes)}, DType::u8, device);
}

Scratch::operator Workspace() const {
  if (!buffer_.defined())
    return {};
  return {buffer_.view().data, static_cast<size_t>(buffer_.numel())};
}

Tensor as_rows(const char* op, const Tensor& x) {
  check(x.rank() >= 1, "{}: a tensor of at least one dimension is needed: {}", op, x.shape());
  return contiguous(x).reshape(rows_of(x.shape()));
}

View view_or_null(const Tensor& x) {
  return x.defined() ? x.view() : View{};
}

DType statistics_dtype(DType x) {
  return x == DType::f64 ? DType::f64 : DType::f32;
}

Shape without_last(const Shape& shape) {
  Shape out = shape;
  out.erase(-1);
  return out;
}

}  // namespace sg::detail

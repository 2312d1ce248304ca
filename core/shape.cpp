#include "core/shape.h"

namespace sg {

Dims::Dims(std::span<const int64_t> values) {
  for (int64_t value : values)
    push_back(value);
}

void Dims::push_back(int64_t value) {
  check(rank_ < max_rank, "shape: at most {} dimensions", max_rank);
  values_[static_cast<size_t>(rank_++)] = value;
}

void Dims::insert(int d, int64_t value) {
  push_back(value);
  std::rotate(values_.begin() + d, values_.begin() + rank_ - 1, values_.begin() + rank_);
}

void Dims::erase(int d) {
  d = wrap(d);
  std::copy(values_.begin() + d + 1, values_.begin() + rank_, values_.begin() + d);
  values_[static_cast<size_t>(--rank_)] = 0;
}

void Dims::out_of_range(int d) const {
  fail(ErrorKind::usage, "dimension {} of a shape of rank {}: {}", d, rank_, *this);
}

int64_t numel(const Shape& shape) {
  int64_t n = 1;
  bool empty = false;
  for (int64_t size : shape) {
    check(size >= 0, "shape: sizes are not negative: {}", shape);
    empty |= size == 0;
    check(size == 0 || !__builtin_mul_overflow(n, size, &n),
          "shape: more than 2^63 elements: {}",
          shape);
  }
  return empty ? 0 : n;
}

Shape rows_of(const Shape& shape) {
  Shape leading = shape;
  leading.erase(-1);
  return {numel(leading), shape[-1]};
}

Strides dense_strides(const Shape& shape) {
  Strides strides = shape;
  int64_t stride = 1;
  for (int d = shape.rank() - 1; d >= 0; --d) {
    strides.set(d, stride);
    stride *= shape[d];
  }
  return strides;
}

Shape broadcast(const Shape& a, const Shape& b, const char* op) {
  const Shape& longer = a.rank() >= b.rank() ? a : b;
  const Shape& shorter = a.rank() >= b.rank() ? b : a;
  Shape out = longer;
  for (int d = 1; d <= shorter.rank(); ++d) {
    const int64_t x = longer[-d], y = shorter[-d];
    check(x == y || x == 1 || y == 1, "{}: shapes don't broadcast: {} and {}", op, a, b);
    out.set(-d, x == 1 ? y : x);
  }
  return out;
}

std::string to_string(const Dims& dims) {
  std::string text = "(";
  for (int d = 0; d < dims.rank(); ++d)
    text += (d ? ", " : "") + std::to_string(dims[d]);
  return text + ")";
}

}  // namespace sg

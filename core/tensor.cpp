#include "core/tensor.h"

#include <cstring>

#include "core/ops.h"

namespace sg {
namespace {

// The one place where tensors get their memory.
Tensor allocate(const Shape& shape, DType dtype, Device device) {
  int64_t bytes = 0;
  Shape full = shape;  // also where a size is 0: offsets in bytes fit as well
  for (int d = 0; d < full.rank(); ++d)
    full.set(d, full[d] == 0 ? 1 : full[d]);
  check(!__builtin_mul_overflow(numel(full), static_cast<int64_t>(size_of(dtype)), &bytes),
        "empty: more than 2^63 bytes: {} of {}",
        shape,
        name_of(dtype));
  if (numel(shape) == 0)
    bytes = 0;
  auto storage =
      std::make_shared<Storage>(device, static_cast<uint64_t>(bytes), current_category());
  return {std::move(storage), 0, shape, dense_strides(shape), dtype};
}

// Strides under which `shape` shows the same elements in the same order without a copy; false where
// there are none.
bool view_strides(const Shape& from,
                  const Strides& from_strides,
                  const Shape& shape,
                  Strides& out) {
  out = dense_strides(shape);
  if (numel(shape) == 0)
    return true;
  int d = from.rank() - 1;
  int o = shape.rank() - 1;
  while (d >= 0) {
    // A run of old dimensions that lie densely behind each other must be a run of new ones.
    int64_t inner = from_strides[d], old_size = from[d];
    while (d > 0 && (from[d - 1] == 1 || from_strides[d - 1] == old_size * inner)) {
      --d;
      if (old_size == 1 && from[d] != 1)
        inner = from_strides[d];
      old_size *= from[d];
    }
    int64_t new_size = 1;
    while (o >= 0 && (new_size < old_size || shape[o] == 1)) {
      out.set(o, new_size * inner);
      new_size *= shape[o--];
    }
    if (new_size != old_size)
      return false;
    --d;
  }
  return true;
}

}  // namespace

Tensor::Tensor(std::shared_ptr<Storage> storage,
               int64_t offset,
               const Shape& shape,
               const Strides& strides,
               DType dtype)
    : storage_(std::move(storage)),
      offset_(offset),
      shape_(shape),
      strides_(strides),
      dtype_(dtype) {}

void Tensor::undefined(const char* what) {
  fail(ErrorKind::usage, "{}: the tensor is undefined", what);
}

bool Tensor::contiguous() const {
  int64_t expected = 1;
  for (int d = rank() - 1; d >= 0; --d) {
    if (shape_[d] != 1 && strides_[d] != expected)
      return false;
    expected *= shape_[d];
  }
  return true;
}

View Tensor::view() const {
  View v;
  auto* data = static_cast<char*>(slot("data").data());
  v.data = data ? data + offset_ * static_cast<int64_t>(size_of(dtype_)) : nullptr;
  v.dtype = dtype_;
  v.rank = rank();
  std::copy(shape_.begin(), shape_.end(), v.shape);
  std::copy(strides_.begin(), strides_.end(), v.strides);
  return v;
}

void Tensor::check_type(DType wanted) const {
  slot("data");
  check(dtype_ == wanted,
        "data: the tensor is {}, asked for as {}",
        name_of(dtype_),
        name_of(wanted));
  check(device().type == DeviceType::cpu || device().type == DeviceType::host,
        "data: memory of {} can't be read here",
        device());
}

template <class T>
T Tensor::item() const {
  check(numel() == 1, "item: one element is needed: {}", shape_);
  return *data<T>();
}

template <class T>
std::vector<T> Tensor::to_vector() const {
  const Tensor dense = sg::contiguous(*this);
  const T* first = dense.data<T>();
  return std::vector<T>(first, first + numel());
}

Tensor Tensor::reshape(const Shape& wanted) const {
  slot("reshape");
  Shape target = wanted;
  int inferred = -1;
  for (int d = 0; d < target.rank(); ++d) {
    if (target[d] != -1)
      continue;
    check(inferred < 0, "reshape: one size may be -1: {}", wanted);
    inferred = d;
  }
  if (inferred >= 0) {
    target.set(inferred, 1);
    const int64_t known = sg::numel(target);
    check(known > 0, "reshape: -1 beside a size of 0 could be any size: {} for {}", wanted, shape_);
    target.set(inferred, numel() / known);
  }
  check(sg::numel(target) == numel(),
        "reshape: {} elements don't make {}: {}",
        numel(),
        wanted,
        shape_);
  Strides strides;
  if (view_strides(shape_, strides_, target, strides))
    return {storage_, offset_, target, strides, dtype_};
  return sg::contiguous(*this).reshape(target);
}

Tensor Tensor::transpose(int d0, int d1) const {
  slot("transpose");
  Shape shape = shape_;
  Strides strides = strides_;
  shape.set(d0, shape_[d1]), shape.set(d1, shape_[d0]);
  strides.set(d0, strides_[d1]), strides.set(d1, strides_[d0]);
  return {storage_, offset_, shape, strides, dtype_};
}

Tensor Tensor::permute(const Dims& order) const {
  slot("permute");
  check(order.rank() == rank(), "permute: order {} for a tensor of shape {}", order, shape_);
  Shape shape = shape_;
  Strides strides = strides_;
  unsigned seen = 0;
  for (int d = 0; d < rank(); ++d) {
    const int from = shape_.wrap(static_cast<int>(order[d]));
    check(!(seen >> from & 1u), "permute: dimension {} twice in {}", from, order);
    seen |= 1u << from;
    shape.set(d, shape_[from]), strides.set(d, strides_[from]);
  }
  return {storage_, offset_, shape, strides, dtype_};
}

Tensor Tensor::slice(int d, int64_t begin, int64_t end) const {
  slot("slice");
  check(0 <= begin && begin <= end && end <= shape_[d],
        "slice: [{}, {}) of dimension {} of {}",
        begin,
        end,
        d,
        shape_);
  Shape shape = shape_;
  shape.set(d, end - begin);
  return {storage_, offset_ + begin * strides_[d], shape, strides_, dtype_};
}

Tensor Tensor::select(int d, int64_t index) const {
  slot("select");
  check(
      0 <= index && index < shape_[d], "select: index {} of dimension {} of {}", index, d, shape_);
  return slice(d, index, index + 1).squeeze(d);
}

Tensor Tensor::expand(const Shape& wanted) const {
  slot("expand");
  check(wanted.rank() >= rank(), "expand: {} to {}", shape_, wanted);
  static_cast<void>(sg::numel(wanted));  // sizes that nobody could walk over
  Strides strides = wanted;
  const int added = wanted.rank() - rank();
  for (int d = 0; d < wanted.rank(); ++d) {
    const bool stretched = d < added || (shape_[d - added] == 1 && wanted[d] != 1);
    check(stretched || shape_[d - added] == wanted[d], "expand: {} to {}", shape_, wanted);
    strides.set(d, stretched ? 0 : strides_[d - added]);
  }
  return {storage_, offset_, wanted, strides, dtype_};
}

Tensor Tensor::unsqueeze(int d) const {
  slot("unsqueeze");
  if (d < 0)
    d += rank() + 1;
  check(0 <= d && d <= rank(), "unsqueeze: dimension {} of {}", d, shape_);
  Shape shape = shape_;
  Strides strides = strides_;
  strides.insert(d, d < rank() && shape_[d] > 0 ? shape_[d] * strides_[d] : 1);
  shape.insert(d, 1);
  return {storage_, offset_, shape, strides, dtype_};
}

Tensor Tensor::squeeze(int d) const {
  slot("squeeze");
  check(shape_[d] == 1, "squeeze: dimension {} of {} isn't 1", d, shape_);
  Shape shape = shape_;
  Strides strides = strides_;
  strides.erase(d);
  shape.erase(d);
  return {storage_, offset_, shape, strides, dtype_};
}

Tensor empty(const Shape& shape, DType dtype) {
  return allocate(shape, dtype, current_device());
}
Tensor empty(const Shape& shape, DType dtype, Device device) {
  return allocate(shape, dtype, device);
}
bool unique(const Tensor& x) {
  return x.storage().use_count() == 1 && x.contiguous();
}

Tensor empty_like(const Tensor& x) {
  return allocate(x.shape(), x.dtype(), x.device());
}

Tensor zeros(const Shape& shape, DType dtype) {
  return full(shape, 0, dtype);
}
Tensor full(const Shape& shape, double value, DType dtype) {
  Tensor out = empty(shape, dtype);
  fill_(out, value);
  return out;
}
Tensor zeros_like(const Tensor& x) {
  Tensor out = empty_like(x);
  fill_(out, 0);
  return out;
}

template <class T>
Tensor from_vector(const std::vector<T>& values, const Shape& shape) {
  check(numel(shape) == static_cast<int64_t>(values.size()),
        "from_vector: {} values for shape {}",
        values.size(),
        shape);
  Tensor out = empty(shape, dtype_of<T>);
  if (out.device().type == DeviceType::meta)
    return out;
  if constexpr (std::is_same_v<T, bool>)
    std::copy(values.begin(), values.end(), out.data<T>());
  else if (!values.empty())
    std::memcpy(out.data<T>(), values.data(), out.bytes());
  return out;
}

#define SG_INSTANTIATE(T)                               \
  template T Tensor::item<T>() const;                   \
  template std::vector<T> Tensor::to_vector<T>() const; \
  template Tensor from_vector<T>(const std::vector<T>&, const Shape&);
SG_INSTANTIATE(float)
SG_INSTANTIATE(double)
SG_INSTANTIATE(f16)
SG_INSTANTIATE(bf16)
SG_INSTANTIATE(int32_t)
SG_INSTANTIATE(int64_t)
SG_INSTANTIATE(uint8_t)
SG_INSTANTIATE(bool)
#undef SG_INSTANTIATE

}  // namespace sg

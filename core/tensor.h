// Tensor: a strided view of a Storage. Copies are cheap and share the storage; nothing here is
// differentiable.
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "core/device.h"
#include "core/shape.h"
#include "core/storage.h"
#include "kernels/dtype.h"
#include "kernels/view.h"

namespace sg {

class Tensor {
 public:
  Tensor() = default;  // undefined
  Tensor(std::shared_ptr<Storage> storage,
         int64_t offset,
         const Shape& shape,
         const Strides& strides,
         DType dtype);

  bool defined() const { return storage_ != nullptr; }
  const Shape& shape() const { return shape_; }
  const Strides& strides() const { return strides_; }
  int rank() const { return shape_.rank(); }
  int64_t size(int d) const { return shape_[d]; }
  int64_t numel() const { return sg::numel(shape_); }
  uint64_t bytes() const { return static_cast<uint64_t>(numel()) * size_of(dtype_); }
  DType dtype() const { return dtype_; }
  Device device() const { return slot("device").device(); }
  bool contiguous() const;  // row-major without holes

  const std::shared_ptr<Storage>& storage() const { return storage_; }
  int64_t offset() const { return offset_; }  // elements from the storage's start
  uint64_t version() const { return slot("version").version(); }
  void bump_version() const { slot("bump_version").bump_version(); }

  // What kernels see. An empty slot is an error; the pointer is null on meta.
  View view() const;
  // Pointer to the first element; T must be the dtype (usage error otherwise). Only for memory this
  // process can read.
  template <class T>
  T* data() const {
    check_type(dtype_of<T>);
    return static_cast<T*>(view().data);
  }
  template <class T>
  T item() const;  // the only element
  template <class T>
  std::vector<T> to_vector() const;  // row-major, any strides

  // Views; no data moves. Errors name shapes.
  Tensor reshape(
      const Shape& shape) const;  // one size may be −1; copies only where strides allow no view
  Tensor transpose(int d0, int d1) const;
  Tensor transposed() const { return transpose(-2, -1); }
  Tensor permute(const Dims& order) const;
  Tensor slice(int d, int64_t begin, int64_t end) const;
  Tensor select(int d, int64_t index) const;  // drops dimension d
  Tensor expand(const Shape& shape) const;    // broadcast: stride 0
  Tensor unsqueeze(int d) const;
  Tensor squeeze(int d) const;
  Tensor flatten() const { return reshape({-1}); }

 private:
  // The storage, for `what`; an undefined tensor has none.
  Storage& slot(const char* what) const {
    if (!storage_) [[unlikely]]
      undefined(what);
    return *storage_;
  }
  [[noreturn]] static void undefined(const char* what);
  void check_type(DType wanted) const;
  std::shared_ptr<Storage> storage_;
  int64_t offset_ = 0;
  Shape shape_;
  Strides strides_;
  DType dtype_ = DType::f32;
};

// ---- creation: on current_device() and under current_category() unless given
Tensor empty(const Shape& shape, DType dtype = DType::f32);
Tensor empty(const Shape& shape, DType dtype, Device device);
Tensor zeros(const Shape& shape, DType dtype = DType::f32);
Tensor full(const Shape& shape, double value, DType dtype = DType::f32);
Tensor empty_like(const Tensor& x);  // dense
// x is dense and nobody else holds its memory, so it may be changed or kept.
bool unique(const Tensor& x);
Tensor zeros_like(const Tensor& x);
// Copies; the number of values must match.
template <class T>
Tensor from_vector(const std::vector<T>& values, const Shape& shape);
template <class T>
Tensor from_vector(const std::vector<T>& values) {
  return from_vector(values, Shape{static_cast<int64_t>(values.size())});
}

}  // namespace sg

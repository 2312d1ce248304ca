// What a kernel sees of a tensor: a pointer and its layout. A view owns nothing.
#pragma once
#include <cstdint>

#include "kernels/dtype.h"

namespace sg {

inline constexpr int max_rank = 6;

struct View {
  void* data = nullptr;
  DType dtype = DType::f32;
  int rank = 0;
  int64_t shape[max_rank] = {};
  int64_t strides[max_rank] = {};  // in elements; 0 where a dimension is broadcast

  template <class T>
  SG_INLINE T* as() const {
    return static_cast<T*>(data);
  }

  SG_INLINE int64_t numel() const {
    int64_t n = 1;
    for (int d = 0; d < rank; ++d)
      n *= shape[d];
    return n;
  }
  // Size and stride of dimension d, counted from the end when negative.
  SG_INLINE int64_t size(int d) const { return shape[d < 0 ? d + rank : d]; }
  SG_INLINE int64_t stride(int d) const { return strides[d < 0 ? d + rank : d]; }

  // Row-major without holes; dimensions of size 1 may have any stride.
  SG_INLINE bool contiguous() const {
    int64_t expected = 1;
    for (int d = rank - 1; d >= 0; --d) {
      if (shape[d] != 1 && strides[d] != expected)
        return false;
      expected *= shape[d];
    }
    return true;
  }
};

// A dense one-dimensional view of `count` elements at `data`.
SG_INLINE View flat_view(void* data, DType dtype, int64_t count) {
  View view;
  view.data = data;
  view.dtype = dtype;
  view.rank = 1;
  view.shape[0] = count;
  view.strides[0] = 1;
  return view;
}

// Elements [begin, begin + count) of a dense view, as if it had one dimension; no data: none here.
SG_INLINE View flat_range(const View& x, int64_t begin, int64_t count) {
  const int64_t bytes = begin * static_cast<int64_t>(size_of(x.dtype));
  return flat_view(x.data ? x.as<char>() + bytes : nullptr, x.dtype, count);
}

// The same dense memory as elements of another dtype, as many as there is room for.
SG_INLINE View retyped(const View& x, DType dtype) {
  const int64_t bytes = x.numel() * static_cast<int64_t>(size_of(x.dtype));
  return flat_view(x.data, dtype, bytes / static_cast<int64_t>(size_of(dtype)));
}

SG_INLINE uint64_t bytes_of(const View& x) {  // dense
  return static_cast<uint64_t>(x.numel()) * size_of(x.dtype);
}

}  // namespace sg

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

}  // namespace sg

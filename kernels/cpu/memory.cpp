// fill and copy: any strides, any dtype to any other.
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/strided.h"
#include "kernels/cpu/vec.h"

namespace sg::kernels::SG_ISA {
namespace {

constexpr int64_t tile = 32;  // side of the blocks in which a transpose is copied

// One element converted as a C++ cast does it, 16-bit floats by way of f32, to bool by comparison with zero.
template <class To, class From>
SG_INLINE To convert(From x) {
  constexpr bool half_in = std::is_same_v<From, f16> || std::is_same_v<From, bf16>;
  constexpr bool half_out = std::is_same_v<To, f16> || std::is_same_v<To, bf16>;
  if constexpr (std::is_same_v<To, From>) return x;
  else if constexpr (half_in) return convert<To>(static_cast<float>(x));
  else if constexpr (std::is_same_v<To, bool>) return x != From(0);
  else if constexpr (half_out) return To(static_cast<float>(x));
  else return static_cast<To>(x);
}

// Calls f with a null pointer of the C++ type of t.
template <class F>
SG_INLINE void with_type(DType t, F&& f) {
  switch (t) {
    case DType::f32: return f(static_cast<float*>(nullptr));
    case DType::f64: return f(static_cast<double*>(nullptr));
    case DType::f16: return f(static_cast<f16*>(nullptr));
    case DType::bf16: return f(static_cast<bf16*>(nullptr));
    case DType::i32: return f(static_cast<int32_t*>(nullptr));
    case DType::i64: return f(static_cast<int64_t*>(nullptr));
    case DType::u8: return f(static_cast<uint8_t*>(nullptr));
    case DType::boolean: return f(static_cast<bool*>(nullptr));
  }
}

template <class From, class To>
SG_INLINE void copy_row(const From* x, int64_t x_stride, To* y, int64_t y_stride, int64_t n) {
  constexpr bool vectors = std::is_same_v<Lanes<From>, Vec> && std::is_same_v<Lanes<To>, Vec>;
  if (x_stride == 1 && y_stride == 1) {
    if constexpr (std::is_same_v<From, To>) {
      __builtin_memcpy(y, x, static_cast<size_t>(n) * sizeof(To));
    } else if constexpr (vectors) {
      for_lanes<Vec>(n, [&](int64_t i, auto part) { store(y + i, load(x + i, part), part); });
    } else {
      for (int64_t i = 0; i < n; ++i) y[i] = convert<To>(x[i]);
    }
  } else {
    for (int64_t i = 0; i < n; ++i) y[i * y_stride] = convert<To>(x[i * x_stride]);
  }
}

// The last two dimensions of a walk are a transpose where out is dense along the last one and in along the one before.
template <class From, class To>
void copy_transposed(const Walk<2>& walk, const From* x, To* y, StreamHandle stream) {
  const int r = walk.rank;
  const int64_t rows = walk.shape[r - 2], columns = walk.shape[r - 1];
  const int64_t y_stride = walk.strides[0][r - 2], x_stride = walk.strides[1][r - 1];
  Walk<2> outer = walk;  // whose rows are the matrices
  outer.rank = r - 1;
  const int64_t stripes = (rows + tile - 1) / tile;
  parallel_for(stream, outer.rows() * stripes, [&](int64_t task, int) {
    int64_t offsets[2];
    outer.seek(task / stripes, offsets);
    const int64_t top = task % stripes * tile, bottom = top + tile < rows ? top + tile : rows;
    for (int64_t left = 0; left < columns; left += tile) {
      const int64_t right = left + tile < columns ? left + tile : columns;
      for (int64_t i = top; i < bottom; ++i) {
        for (int64_t j = left; j < right; ++j) {
          y[offsets[0] + i * y_stride + j] = convert<To>(x[offsets[1] + i + j * x_stride]);
        }
      }
    }
  });
}

template <class From, class To>
void copy_as(const View& in, const View& out, StreamHandle stream) {
  const View* const operands[2] = {&out, &in};
  const Walk<2> walk = walk_of(operands);
  const From* x = in.as<From>();
  To* y = out.as<To>();
  const int r = walk.rank;
  const int64_t y_inner = walk.inner_stride(0), x_inner = walk.inner_stride(1);
  const bool transposed = r >= 2 && y_inner == 1 && x_inner > 1 && walk.strides[1][r - 2] == 1;
  if (transposed) return copy_transposed(walk, x, y, stream);
  for_rows(stream, walk,
           [&](const int64_t* offsets, int64_t n) { copy_row(x + offsets[1], x_inner, y + offsets[0], y_inner, n); });
}

}  // namespace

void fill(const View& out, double value, StreamHandle stream) {
  const View* const operands[1] = {&out};
  const Walk<1> walk = walk_of(operands);
  const int64_t stride = walk.inner_stride(0);
  with_type(out.dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const T x = convert<T>(value);
    for_rows(stream, walk, [&](const int64_t* offsets, int64_t n) {
      T* y = out.as<T>() + offsets[0];
      for (int64_t i = 0; i < n; ++i) y[i * stride] = x;
    });
  });
}

void copy(const View& in, const View& out, StreamHandle stream) {
  with_type(in.dtype, [&](auto* from) {
    with_type(out.dtype, [&](auto* to) {
      copy_as<std::remove_pointer_t<decltype(from)>, std::remove_pointer_t<decltype(to)>>(in, out, stream);
    });
  });
}

}  // namespace sg::kernels::SG_ISA

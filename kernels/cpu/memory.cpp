// fill and copy: any strides, any dtype to any other.
#include "kernels/cpu/strided.h"
#include "kernels/cpu/vec.h"
#include "kernels/entries.h"

namespace sg::kernels::SG_ISA {
namespace {

constexpr int64_t tile = 16;  // side of the blocks in which a transpose is copied

using CastFunction =
    void (*)(const void* x, int64_t x_stride, void* y, int64_t y_stride, int64_t n);

template <class To, class From>
void cast_row(const void* from, int64_t x_stride, void* to, int64_t y_stride, int64_t n) {
  const From* const x = static_cast<const From*>(from);
  To* const y = static_cast<To*>(to);
  if constexpr (std::is_same_v<Lanes<From>, Vec> && std::is_same_v<Lanes<To>, Vec>) {
    if (x_stride == 1 && y_stride == 1) {
      return for_lanes<Vec>(n,
                            [&](int64_t i, auto part) { store(y + i, load(x + i, part), part); });
    }
  }
  for (int64_t i = 0; i < n; ++i)
    y[i * y_stride] = element::convert<To>(x[i * x_stride]);
}

template <class To>
CastFunction cast_from(DType t) {
  constexpr CastFunction functions[dtype_count] = {cast_row<To, float>,
                                                   cast_row<To, double>,
                                                   cast_row<To, f16>,
                                                   cast_row<To, bf16>,
                                                   cast_row<To, int32_t>,
                                                   cast_row<To, int64_t>,
                                                   cast_row<To, uint8_t>,
                                                   cast_row<To, bool>};
  return functions[static_cast<int>(t)];
}
CastFunction cast_function(DType from, DType to) {
  constexpr CastFunction (*functions[dtype_count])(DType) = {cast_from<float>,
                                                             cast_from<double>,
                                                             cast_from<f16>,
                                                             cast_from<bf16>,
                                                             cast_from<int32_t>,
                                                             cast_from<int64_t>,
                                                             cast_from<uint8_t>,
                                                             cast_from<bool>};
  return functions[static_cast<int>(to)](from);
}

// The last two dimensions of a walk are a transpose where out is dense along the last one and in
// along the one before.
bool is_transpose(const Walk<2>& walk) {
  const int last = walk.rank - 1;
  return last > 0 && walk.strides[0][last] == 1 && walk.strides[1][last] > 1 &&
         walk.strides[1][last - 1] == 1;
}
// A tile passes through the stack: each line of in is touched once, while it is certainly in cache,
// however many of them share a cache set.
template <size_t size>
void copy_tile(
    const char* x, int64_t x_stride, char* y, int64_t y_stride, int64_t rows, int64_t columns) {
  constexpr int64_t bytes = size;
  char columns_of[tile][tile * size];
  for (int64_t j = 0; j < columns; ++j)
    __builtin_memcpy(columns_of[j], x + j * x_stride * bytes, static_cast<size_t>(rows * bytes));
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j)
      __builtin_memcpy(y + (i * y_stride + j) * bytes, columns_of[j] + i * bytes, size);
  }
}

void copy_transpose(const Walk<2>& walk, size_t size, const char* x, char* y, StreamHandle stream) {
  const int last = walk.rank - 1;
  const int64_t rows = walk.shape[last - 1], columns = walk.shape[last],
                bytes = static_cast<int64_t>(size);
  const int64_t y_stride = walk.strides[0][last - 1], x_stride = walk.strides[1][last];
  Walk<2> matrices = walk;  // each row of this walk is one matrix
  matrices.rank = last;
  const int64_t stripes = (rows + tile - 1) / tile;
  const auto copy = size == 1   ? copy_tile<1>
                    : size == 2 ? copy_tile<2>
                    : size == 4 ? copy_tile<4>
                                : copy_tile<8>;
  parallel_for(stream, matrices.rows() * stripes, [&](int64_t task, int) {
    int64_t offsets[2];
    matrices.seek(task / stripes, offsets);
    const int64_t top = task % stripes * tile, height = rows - top < tile ? rows - top : tile;
    for (int64_t left = 0; left < columns; left += tile) {
      const char* const from = x + (offsets[1] + top + left * x_stride) * bytes;
      char* const to = y + (offsets[0] + top * y_stride + left) * bytes;
      copy(from, x_stride, to, y_stride, height, columns - left < tile ? columns - left : tile);
    }
  });
}

}  // namespace

void copy(const View& in, const View& out, StreamHandle stream) {
  const Walk<2> walk = walk_of({&out, &in});
  const int64_t x_size = static_cast<int64_t>(size_of(in.dtype)),
                y_size = static_cast<int64_t>(size_of(out.dtype));
  const int64_t y_stride = walk.inner_stride(0), x_stride = walk.inner_stride(1);
  const char* const x = in.as<char>();
  char* const y = out.as<char>();
  if (in.dtype != out.dtype) {
    const CastFunction cast = cast_function(in.dtype, out.dtype);
    for_rows(stream, walk, [&](const int64_t* offsets, int64_t n) {
      cast(x + offsets[1] * x_size, x_stride, y + offsets[0] * y_size, y_stride, n);
    });
  } else if (is_transpose(walk)) {
    copy_transpose(walk, size_of(out.dtype), x, y, stream);
  } else {
    for_rows(stream, walk, [&](const int64_t* offsets, int64_t n) {
      copy_elements(size_of(out.dtype),
                    x + offsets[1] * x_size,
                    x_stride,
                    y + offsets[0] * y_size,
                    y_stride,
                    n);
    });
  }
}

void fill(const View& out, double value, StreamHandle stream) {
  alignas(8) char element[8];
  cast_function(DType::f64, out.dtype)(&value, 1, element, 1, 1);
  const Walk<1> walk = walk_of({&out});
  const int64_t size = static_cast<int64_t>(size_of(out.dtype)), stride = walk.inner_stride(0);
  for_rows(stream, walk, [&](const int64_t* offsets, int64_t n) {
    copy_elements(size_of(out.dtype), element, 0, out.as<char>() + offsets[0] * size, stride, n);
  });
}

}  // namespace sg::kernels::SG_ISA

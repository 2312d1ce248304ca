// fill and copy: any strides, any dtype to any other. Dense arrays move in accesses of 16 bytes,
// transposes through tiles in shared memory, everything else element by element in out's order.
#include <cstring>

#include "kernels/cuda/access.h"
#include "kernels/cuda/launch.h"
#include "kernels/element.h"
#include "kernels/entries.h"
#include "kernels/walk.h"

namespace sg::kernels::cuda {
namespace {

constexpr int threads = 256;

__device__ int64_t first_index() {
  return static_cast<int64_t>(blockIdx.x) * threads + threadIdx.x;
}
__device__ int64_t grid_step() {
  return static_cast<int64_t>(gridDim.x) * threads;
}

// Where element i of operand k lies.
template <int N>
__device__ void offsets_of(const Walk<N>& walk, int64_t i, int64_t (&at)[N]) {
  const int64_t row = walk.rank == 1 ? 0 : i / walk.inner();  // a division costs more than the rest
  walk.seek(row, at);
  for (int k = 0; k < N; ++k)
    at[k] += (i - row * walk.inner()) * walk.inner_stride(k);
}

template <int N, class To, class From>
__device__ __forceinline__ void cast_lot(const From* x, To* y) {
  From from[N];
  To to[N];
  load<N>(x, from);
#pragma unroll
  for (int j = 0; j < N; ++j)
    to[j] = element::convert<To>(from[j]);
  store<N>(y, to);
}

// Elements of the wider type in 16 bytes.
template <class To, class From>
constexpr int lot_of = 16 / static_cast<int>(sizeof(To) > sizeof(From) ? sizeof(To) : sizeof(From));

template <class To, class From>
__global__ void __launch_bounds__(threads)
    dense_kernel(const From* x, To* y, int64_t count, int64_t lots) {
  constexpr int N = lot_of<To, From>;
  for (int64_t i = first_index(); i < lots; i += grid_step())
    cast_lot<N>(x + i * N, y + i * N);
  for (int64_t i = lots * N + first_index(); i < count; i += grid_step())
    cast_lot<1>(x + i, y + i);
}

template <class To, class From>
__global__ void __launch_bounds__(threads)
    strided_kernel(const From* x, To* y, Walk<2> walk, int64_t count) {
  for (int64_t i = first_index(); i < count; i += grid_step()) {
    int64_t at[2];
    offsets_of(walk, i, at);
    cast_lot<1>(x + at[1], y + at[0]);
  }
}

template <class To, class From>
void cast(const View& in, const View& out, const Walk<2>& walk, StreamHandle stream) {
  constexpr int N = lot_of<To, From>;
  const int64_t count = out.numel();
  const From* const x = in.as<From>();
  To* const y = out.as<To>();
  const bool dense = walk.rank == 1 && walk.inner_stride(0) == 1 && walk.inner_stride(1) == 1;
  if (!dense && count > 1) {
    const unsigned blocks = blocks_for(count, threads);
    return launch(
        strided_kernel<To, From>, blocks, threads, 0, stream_of(stream), x, y, walk, count);
  }
  const int64_t lots = aligned(x, y) ? count / N : 0;
  const unsigned blocks = blocks_for(lots > 0 ? lots : count, threads);
  launch(dense_kernel<To, From>, blocks, threads, 0, stream_of(stream), x, y, count, lots);
}

template <class To>
void cast_to(const View& in, const View& out, const Walk<2>& walk, StreamHandle stream) {
  switch (in.dtype) {
    case DType::f32: return cast<To, float>(in, out, walk, stream);
    case DType::f64: return cast<To, double>(in, out, walk, stream);
    case DType::f16: return cast<To, f16>(in, out, walk, stream);
    case DType::bf16: return cast<To, bf16>(in, out, walk, stream);
    case DType::i32: return cast<To, int32_t>(in, out, walk, stream);
    case DType::i64: return cast<To, int64_t>(in, out, walk, stream);
    case DType::u8: return cast<To, uint8_t>(in, out, walk, stream);
    case DType::boolean: return cast<To, bool>(in, out, walk, stream);
  }
}

void cast(const View& in, const View& out, const Walk<2>& walk, StreamHandle stream) {
  switch (out.dtype) {
    case DType::f32: return cast_to<float>(in, out, walk, stream);
    case DType::f64: return cast_to<double>(in, out, walk, stream);
    case DType::f16: return cast_to<f16>(in, out, walk, stream);
    case DType::bf16: return cast_to<bf16>(in, out, walk, stream);
    case DType::i32: return cast_to<int32_t>(in, out, walk, stream);
    case DType::i64: return cast_to<int64_t>(in, out, walk, stream);
    case DType::u8: return cast_to<uint8_t>(in, out, walk, stream);
    case DType::boolean: return cast_to<bool>(in, out, walk, stream);
  }
}

// ---- transposes: out is dense along the last dimension, in along the one before

constexpr int tile = 32;            // side of the blocks in which a transpose is copied
constexpr int tile_lines = 8;       // of threads
constexpr int tile_row = tile + 1;  // the elements of a column lie in other banks

bool is_transpose(const Walk<2>& walk) {
  const int last = walk.rank - 1;
  return last > 0 && walk.strides[0][last] == 1 && walk.strides[1][last] > 1 &&
         walk.strides[1][last - 1] == 1;
}

// A walk over matrices, and the strides within one: x (columns, rows) dense by rows.
struct Transpose {
  Walk<2> matrices;
  int64_t rows, columns, x_stride, y_stride, tiles_down, tiles_across;
};

template <class T>
__global__ void __launch_bounds__(tile* tile_lines)
    transpose_kernel(const T* x, T* y, Transpose t) {
  SG_SHARED(T, staged, [tile * tile_row]);
  const int64_t down = blockIdx.x / t.tiles_across % t.tiles_down * tile;
  const int64_t across = blockIdx.x % t.tiles_across * tile;
  int64_t at[2];
  t.matrices.seek(blockIdx.x / (t.tiles_across * t.tiles_down), at);
  const int lane = threadIdx.x % tile;
  const int first = threadIdx.x / tile;
  for (int line = first; line < tile; line += tile_lines) {
    const int64_t row = down + lane;
    const int64_t column = across + line;
    if (row < t.rows && column < t.columns)
      write(staged + line * tile_row + lane, read(x + at[1] + column * t.x_stride + row));
  }
  __syncthreads();
  for (int line = first; line < tile; line += tile_lines) {
    const int64_t row = down + line;
    const int64_t column = across + lane;
    if (row < t.rows && column < t.columns)
      write(y + at[0] + row * t.y_stride + column, read(staged + lane * tile_row + line));
  }
}

template <class T>
void transpose(const View& in, const View& out, const Walk<2>& walk, StreamHandle stream) {
  const int last = walk.rank - 1;
  const int64_t rows = walk.shape[last - 1];
  const int64_t columns = walk.shape[last];
  Transpose t{walk,
              rows,
              columns,
              walk.strides[1][last],
              walk.strides[0][last - 1],
              (rows + tile - 1) / tile,
              (columns + tile - 1) / tile};
  t.matrices.rank = last;  // each row of this walk is one matrix
  const int64_t blocks = t.matrices.rows() * t.tiles_down * t.tiles_across;
  launch(transpose_kernel<T>,
         static_cast<unsigned>(blocks),
         tile * tile_lines,
         0,
         stream_of(stream),
         in.as<T>(),
         out.as<T>(),
         t);
}

// Elements of one dtype move as integers of their size.
template <class T>
void copy_words(const View& in, const View& out, const Walk<2>& walk, StreamHandle stream) {
  if (is_transpose(walk))
    transpose<T>(in, out, walk, stream);
  else
    cast<T, T>(in, out, walk, stream);
}

// ---- fill

template <class T>
__global__ void __launch_bounds__(threads)
    fill_kernel(T* y, T value, Walk<1> walk, int64_t count, int64_t lots) {
  constexpr int N = wide<T>;
  T values[N];
  for (int j = 0; j < N; ++j)
    values[j] = value;
  for (int64_t i = first_index(); i < lots; i += grid_step())
    store<N>(y + i * N, values);
  for (int64_t i = lots * N + first_index(); i < count; i += grid_step()) {
    int64_t at[1];
    offsets_of(walk, i, at);
    write(y + at[0], value);
  }
}

// The value as `element` has it, in an integer of its size.
template <class T>
void fill_words(const View& out, const void* element, StreamHandle stream) {
  T value;
  std::memcpy(&value, element, sizeof value);
  const Walk<1> walk = walk_of({&out});
  const int64_t count = out.numel();
  T* const y = out.as<T>();
  const bool dense = walk.rank == 1 && walk.inner_stride(0) == 1 && aligned(y);
  const int64_t lots = dense ? count / wide<T> : 0;
  const unsigned blocks = blocks_for(lots > 0 ? lots : count, threads);
  launch(fill_kernel<T>, blocks, threads, 0, stream_of(stream), y, value, walk, count, lots);
}

template <class T>
void element_of(double value, void* element) {
  const T x = element::convert<T>(value);
  std::memcpy(element, &x, sizeof x);
}
void element_of(DType t, double value, void* element) {
  switch (t) {
    case DType::f32: return element_of<float>(value, element);
    case DType::f64: return element_of<double>(value, element);
    case DType::f16: return element_of<f16>(value, element);
    case DType::bf16: return element_of<bf16>(value, element);
    case DType::i32: return element_of<int32_t>(value, element);
    case DType::i64: return element_of<int64_t>(value, element);
    case DType::u8: return element_of<uint8_t>(value, element);
    case DType::boolean: return element_of<bool>(value, element);
  }
}

}  // namespace

void copy(const View& in, const View& out, StreamHandle stream) {
  if (out.numel() == 0)
    return;
  const Walk<2> walk = walk_of({&out, &in});
  if (in.dtype != out.dtype)
    return cast(in, out, walk, stream);
  switch (size_of(out.dtype)) {
    case 1: return copy_words<uint8_t>(in, out, walk, stream);
    case 2: return copy_words<uint16_t>(in, out, walk, stream);
    case 4: return copy_words<uint32_t>(in, out, walk, stream);
    default: return copy_words<uint64_t>(in, out, walk, stream);
  }
}

void fill(const View& out, double value, StreamHandle stream) {
  if (out.numel() == 0)
    return;
  char element[8];
  element_of(out.dtype, value, element);
  switch (size_of(out.dtype)) {
    case 1: return fill_words<uint8_t>(out, element, stream);
    case 2: return fill_words<uint16_t>(out, element, stream);
    case 4: return fill_words<uint32_t>(out, element, stream);
    default: return fill_words<uint64_t>(out, element, stream);
  }
}

}  // namespace sg::kernels::cuda

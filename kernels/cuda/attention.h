// What attention's forward and backward share: the geometry of heads, tiles in shared memory, and
// the weights of a tile.
//
// A block of threads has some rows of one head, queries or keys, and goes through tiles of 32 of
// the others. A warp has rows of the queries, a lane is a key: scores are dot products from shared
// memory, a softmax is a warp's reduction. Tiles that a causal mask hides whole are skipped. Rows
// in shared memory are an odd number of elements apart, so that the lanes' keys lie in other banks.
#pragma once
#include <cmath>

#include "kernels/cuda/rows.h"
#include "kernels/random.h"
#include "kernels/table.h"

namespace sg::kernels::cuda::heads {

inline constexpr int keys_of_tile = warp_lanes;
inline constexpr int warps = 8;
inline constexpr int threads = warps * warp_lanes;
// What a block may ask for on compute capability 8.0 and above.
inline constexpr size_t most_shared_bytes = size_t(160) << 10;

// Rows of one head of a (b,h,t,d) view.
struct Heads {
  void* data;
  int64_t strides[3];

  template <class T>
  __device__ T* row(int64_t batch, int64_t head, int64_t i) const {
    return static_cast<T*>(data) + batch * strides[0] + head * strides[1] + i * strides[2];
  }
};
inline Heads heads_of(const View& x) {
  return {x.data, {x.strides[0], x.strides[1], x.strides[2]}};
}

struct Mask {
  const void* data = nullptr;
  bool boolean = false;
  int64_t strides[4] = {};
};

struct Geometry {
  int64_t b, h, hk, t, s, d;
  int64_t padded;  // elements from a row in shared memory to the next: odd
  bool causal;
  int64_t window;  // keys that a query sees at most; 0: any
  double scale;
  float dropout;
  RandomKey random;
  Mask mask;

  // Keys that query i sees: 0 … visible(i) − 1.
  __device__ int64_t visible(int64_t i) const {
    const int64_t end = causal ? i + s - t + 1 : s;
    return end < 0 ? 0 : end < s ? end : s;
  }
  // Those before this are hidden from it.
  __device__ int64_t hidden(int64_t i) const {
    const int64_t first = window > 0 ? visible(i) - window : 0;
    return first < 0 ? 0 : first;
  }
  // The first query that sees key j, and the end of those that do.
  __device__ int64_t first_viewer(int64_t j) const {
    const int64_t first = causal ? j + t - s : 0;
    return first < 0 ? 0 : first;
  }
  __device__ int64_t last_viewer(int64_t j) const {
    const int64_t end = window > 0 ? j + t - s + window : t;
    return end < t ? end : t;
  }
};
inline Geometry geometry_of(const View& q, const View& k, const AttentionOptions& o) {
  Geometry g{.b = q.shape[0],
             .h = q.shape[1],
             .hk = k.shape[1],
             .t = q.shape[2],
             .s = k.shape[2],
             .d = q.shape[3],
             .padded = q.shape[3] | 1,
             .causal = o.causal,
             .window = o.causal ? o.window : 0,
             .scale = o.scale,
             .dropout = o.dropout,
             .random = o.random,
             .mask = {}};
  if (!o.mask)
    return g;
  g.mask = {o.mask->data, o.mask->dtype == DType::boolean, {}};
  for (int d = 0; d < 4; ++d)
    g.mask.strides[d] = o.mask->strides[d];
  return g;
}

// Rows first … first + count − 1 of one head into shared memory, zeros where there are none.
template <class T, class S>
__device__ void stage_rows(const Geometry& g,
                           const Heads& x,
                           int64_t batch,
                           int64_t head,
                           int64_t first,
                           int64_t end,
                           int count,
                           S* to) {
  const auto d = static_cast<int>(g.d);
  for (int n = threadIdx.x; n < count * d; n += threads) {
    const int row = n / d;
    const int c = n - row * d;
    const bool inside = first + row < end;
    const S value =
        inside ? static_cast<S>(read(x.row<const T>(batch, head, first + row) + c)) : S(0);
    write(to + row * g.padded + c, value);
  }
}
// The reverse, rounded.
template <class T, class S>
__device__ void write_rows(const Geometry& g,
                           const Heads& x,
                           int64_t batch,
                           int64_t head,
                           int64_t first,
                           int64_t end,
                           int count,
                           const S* from) {
  const auto d = static_cast<int>(g.d);
  for (int n = threadIdx.x; n < count * d; n += threads) {
    const int row = n / d;
    const int c = n - row * d;
    if (first + row < end)
      write(x.row<T>(batch, head, first + row) + c,
            static_cast<T>(read(from + row * g.padded + c)));
  }
}

template <class S>
__device__ __forceinline__ S dot(const S* x, const S* y, int64_t n) {
  S sum = 0;
  for (int64_t c = 0; c < n; ++c)
    sum = std::fma(read(x + c), read(y + c), sum);
  return sum;
}

// The score of query i and key j, −∞ where a mask hides the key.
template <class S>
__device__ __forceinline__ S
masked(const Geometry& g, int64_t batch, int64_t head, int64_t i, int64_t j, S score) {
  const S hidden = -static_cast<S>(INFINITY);
  const bool sees = j < g.visible(i) && j >= g.hidden(i);
  if (!sees)
    return hidden;
  if (!g.mask.data)
    return score;
  const int64_t* const m = g.mask.strides;
  const int64_t at = batch * m[0] + head * m[1] + i * m[2] + j * m[3];
  if (g.mask.boolean)
    return read(static_cast<const bool*>(g.mask.data) + at) ? score : hidden;
  const S bias = static_cast<S>(read(static_cast<const float*>(g.mask.data) + at));
  return bias == hidden ? hidden : score + bias;
}

// What dropout multiplies a weight by: 0, or 1/(1 − p).
template <class S>
__device__ __forceinline__ S
dropout_factor(const Geometry& g, int64_t batch, int64_t head, int64_t i, int64_t j) {
  if (g.dropout == 0)
    return S(1);
  const int64_t element = (head * g.t + i) * g.s + j;
  const uint64_t sample = g.random.first_sample + static_cast<uint64_t>(batch);
  const Philox4 words = draw(g.random, sample, static_cast<uint64_t>(element / 4));
  const bool dropped = uniform(words.word[element % 4]) < g.dropout;
  return dropped ? S(0) : S(1) / (S(1) - static_cast<S>(g.dropout));
}

// e^(score − shift); a row that sees nothing has shift −∞ and weights 0.
template <class S>
__device__ __forceinline__ S weight_of(S score, S shift) {
  return shift == -static_cast<S>(INFINITY) ? S(0) : std::exp(score - shift);
}

// Queries of a block, such that `arrays` of them and `fixed` tiles of keys fit.
template <class S>
int queries_that_fit(const Geometry& g, int arrays, int fixed, const char* op) {
  for (const int queries : {32, 8}) {
    const int64_t rows = static_cast<int64_t>(arrays) * queries + fixed * keys_of_tile;
    const int64_t elements = rows * g.padded + 4 * int64_t{queries} * (keys_of_tile + 1);
    if (static_cast<size_t>(elements) * sizeof(S) <= most_shared_bytes)
      return queries;
  }
  throw std::runtime_error(std::string(op) + ": heads of " + std::to_string(g.d) +
                           " elements don't fit into shared memory on cuda");
}

}  // namespace sg::kernels::cuda::heads

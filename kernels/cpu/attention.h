// What attention's forward and backward share: the geometry of heads, dense copies of their rows, masks and dropout.
//
// Tiles are computed in the wide type (f32, f64 for f64) on dense copies: views have rows far apart, which would cost a
// page and a cache set for each. A copied row has `padded` elements, zeros behind its d. Queries are scaled when
// copied.
#pragma once
#include "kernels/cpu/carver.h"
#include "kernels/cpu/panel.h"
#include "kernels/cpu/philox.h"
#include "kernels/cpu/vec.h"
#include "kernels/table.h"

namespace sg::kernels::SG_ISA::heads {

inline constexpr int64_t block_keys = 64;  // keys copied together: one panel of a score product

struct Geometry {
  int64_t b, h, hk, t, s, d, padded;
  bool causal;

  Geometry(const View& q, const View& k, bool is_causal)
      : b(q.shape[0]),
        h(q.shape[1]),
        hk(k.shape[1]),
        t(q.shape[2]),
        s(k.shape[2]),
        d(q.shape[3]),
        padded((d + panel_step - 1) / panel_step * panel_step),
        causal(is_causal) {}
  // Keys that query i sees: 0 … visible(i) − 1.
  int64_t visible(int64_t i) const {
    const int64_t n = causal ? i + s - t + 1 : s;
    return n < 0 ? 0 : n < s ? n : s;
  }
  // The first query that sees key j.
  int64_t first_query(int64_t j) const { return causal && j > s - t ? j - (s - t) : 0; }
  int64_t key_head(int64_t head) const { return head / (h / hk); }
  int64_t key_blocks() const { return (s + block_keys - 1) / block_keys; }
};

// Row `first` of one head of a (b,h,t,d) view.
template <class T>
T* head_row(const View& x, int64_t batch, int64_t head, int64_t first) {
  return x.as<T>() + batch * x.strides[0] + head * x.strides[1] + first * x.strides[2];
}

// out (count, padded) = scale · rows.
template <class T>
void copy_rows(const T* rows, int64_t stride, int64_t count, const Geometry& g, Statistic<T> scale, Statistic<T>* out) {
  using V = Lanes<Statistic<T>>;
  for (int64_t i = 0; i < count; ++i, rows += stride, out += g.padded) {
    for_lanes<V>(g.d, [&](int64_t c, auto part) { store(out + c, V(load(rows + c, part)) * V(scale), part); });
    for (int64_t c = g.d; c < g.padded; ++c) out[c] = 0;
  }
}

// out (d, block_keys) = rowsᵀ, zeros behind `count` rows.
template <class T>
void copy_transposed(const T* rows, int64_t stride, int64_t count, const Geometry& g, Statistic<T>* out) {
  for (int64_t c = 0; c < g.d; ++c, out += block_keys) {
    for (int64_t i = 0; i < count; ++i) out[i] = static_cast<Statistic<T>>(rows[i * stride + c]);
    for (int64_t i = count; i < block_keys; ++i) out[i] = 0;
  }
}

// rows = scale · from (count, padded), rounded.
template <class T>
void write_rows(const Statistic<T>* from, int64_t count, const Geometry& g, Statistic<T> scale, T* rows,
                int64_t stride) {
  using V = Lanes<Statistic<T>>;
  for (int64_t i = 0; i < count; ++i, from += g.padded, rows += stride) {
    for_lanes<V>(g.d, [&](int64_t c, auto part) { store(rows + c, load(from + c, part) * V(scale), part); });
  }
}

// Row i of the mask, from key j on, added to n scores: −∞ where a boolean mask hides a key.
template <class W>
void add_mask(const View& mask, int64_t batch, int64_t head, int64_t i, int64_t j, int64_t n, W* scores) {
  const int64_t step = mask.strides[3];
  const int64_t at = batch * mask.strides[0] + head * mask.strides[1] + i * mask.strides[2] + j * step;
  if (mask.dtype == DType::boolean) {
    const bool* visible = mask.as<bool>() + at;
    for (int64_t x = 0; x < n; ++x) scores[x] = visible[x * step] ? scores[x] : -static_cast<W>(__builtin_inff());
  } else {
    const float* bias = mask.as<float>() + at;
    for (int64_t x = 0; x < n; ++x) scores[x] += bias[x * step];
  }
}

// factors[x] = 0 where the attention weight (i, j + x) is dropped, else 1/(1 − p).
template <class W>
void dropout_factors(const Geometry& g, const AttentionOptions& o, int64_t batch, int64_t head, int64_t i, int64_t j,
                     int64_t n, W* factors) {
  const W kept = 1 / (1 - static_cast<W>(o.dropout));
  const int64_t first = (head * g.t + i) * g.s + j, end = first + n;
  for (int64_t block = first / 4 * 4; block < end; block += block_draws) {
    float u[block_draws];
    uniform_block(o.random, o.random.first_sample + static_cast<uint64_t>(batch), static_cast<uint64_t>(block / 4), u);
    const int64_t from = block < first ? first : block, to = block + block_draws < end ? block + block_draws : end;
    for (int64_t x = from; x < to; ++x) factors[x - first] = u[x - block] < o.dropout ? 0 : kept;
  }
}

template <class T>
size_t backward_workspace(const Geometry&, int threads);

}  // namespace sg::kernels::SG_ISA::heads

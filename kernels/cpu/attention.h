// What attention's forward and backward share: the geometry of heads, and the scores of one tile as they enter the
// softmax.
#pragma once
#include "kernels/cpu/carver.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/philox.h"
#include "kernels/cpu/vec.h"
#include "kernels/table.h"

namespace sg::kernels::SG_ISA::heads {

struct Geometry {
  int64_t b, h, hk, t, s, d;
  bool causal;

  Geometry(const View& q, const View& k, bool is_causal)
      : b(q.shape[0]), h(q.shape[1]), hk(k.shape[1]), t(q.shape[2]), s(k.shape[2]), d(q.shape[3]), causal(is_causal) {}
  // Keys that query i sees: 0 … visible(i) − 1.
  int64_t visible(int64_t i) const {
    const int64_t n = causal ? i + s - t + 1 : s;
    return n < 0 ? 0 : n < s ? n : s;
  }
  // The first query that sees key j.
  int64_t first_query(int64_t j) const { return causal && j > s - t ? j - (s - t) : 0; }
  int64_t key_head(int64_t head) const { return head / (h / hk); }
};

// Row `first` of one head of a (b,h,t,d) view.
template <class T>
T* head_row(const View& x, int64_t batch, int64_t head, int64_t first) {
  return x.as<T>() + batch * x.strides[0] + head * x.strides[1] + first * x.strides[2];
}

template <class W>
struct Rows {
  const W* data;
  int64_t ld;
};

// `count` rows of a head in the wide type: in place where they have it, else widened into the buffer (count, d).
template <class T>
Rows<Statistic<T>> wide_rows(const View& x, int64_t batch, int64_t head, int64_t first, int64_t count,
                             Statistic<T>* buffer) {
  const T* from = head_row<T>(x, batch, head, first);
  const int64_t d = x.shape[3], ld = x.strides[2] >= d ? x.strides[2] : d;
  if constexpr (std::is_same_v<T, Statistic<T>>) return {from, ld};
  else {
    for (int64_t i = 0; i < count; ++i) {
      for_lanes<Vec>(
          d, [&](int64_t j, auto part) { store(buffer + i * d + j, load(from + i * x.strides[2] + j, part), part); });
    }
    return {buffer, d};
  }
}

template <class W>
void product(int64_t m, int64_t n, int64_t k, const W* a, int64_t lda, bool a_transposed, const W* b, int64_t ldb,
             bool b_transposed, W* c, int64_t ldc, bool accumulate) {
  gemm<W>({m, n, k, {a, lda, a_transposed}, {b, ldb, b_transposed}, c, ldc, accumulate}, nullptr);
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

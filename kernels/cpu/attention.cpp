// Attention forward by tiles with a running softmax (Dao et al., "FlashAttention", 2022): no (t, s) matrix exists, and
// tiles that a causal mask hides are never computed. Keys and values are copied once; then a task is a block of queries
// of one head.
#include "kernels/cpu/attention.h"

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/runtime/parallel.h"

namespace sg::kernels::SG_ISA {
namespace heads {
namespace {

constexpr int64_t query_rows = 48;
constexpr int64_t key_columns = 4 * block_keys;  // of a tile of scores

template <class W>
struct Buffers {
  W *keys, *values;  // (b, hk, key blocks, d, block_keys) and (b, hk, s, padded), of all threads
  W* scores;         // (query_rows, key_columns)
  W *q, *out;        // (query_rows, padded); out is not yet divided by the sum
  W *maximum, *sum;  // (query_rows)
  W* factors;        // (key_columns), dropout
  size_t shared, per_thread;

  Buffers(void* data, const Geometry& g, int worker) {
    Carver all(data);
    keys = all.take<W>(g.b * g.hk * g.key_blocks() * g.d * block_keys);
    values = all.take<W>(g.b * g.hk * g.s * g.padded);
    shared = all.bytes();
    const auto take_own = [&](Carver own) {
      scores = own.take<W>(query_rows * key_columns);
      q = own.take<W>(query_rows * g.padded), out = own.take<W>(query_rows * g.padded);
      maximum = own.take<W>(query_rows), sum = own.take<W>(query_rows);
      factors = own.take<W>(key_columns);
      return own.bytes();
    };
    per_thread = take_own(Carver(nullptr));
    if (data) take_own(Carver(static_cast<char*>(data) + shared + per_thread * static_cast<size_t>(worker)));
  }
};

template <class T>
class Forward {
 public:
  using W = Statistic<T>;
  using V = Lanes<W>;

  Forward(const View& q, const View& k, const View& v, const View& out, const View& lse,
          const AttentionOptions& options)
      : g_(q, k, options.causal), q_(q), k_(k), v_(v), out_(out), lse_(lse), o_(options) {}

  const Geometry& geometry() const { return g_; }
  int64_t copies() const { return g_.b * g_.hk * g_.key_blocks(); }
  int64_t tasks() const { return g_.b * g_.h * query_blocks(); }

  // One block of keys and values.
  void copy(int64_t task, const Buffers<W>& x) const {
    const int64_t block = task % g_.key_blocks(), head = task / g_.key_blocks() % g_.hk,
                  batch = task / g_.key_blocks() / g_.hk;
    const int64_t j = block * block_keys, count = g_.s - j < block_keys ? g_.s - j : block_keys;
    copy_transposed(head_row<T>(k_, batch, head, j), k_.strides[2], count, g_, x.keys + task * g_.d * block_keys);
    W* const values = x.values + ((batch * g_.hk + head) * g_.s + j) * g_.padded;
    copy_rows(head_row<T>(v_, batch, head, j), v_.strides[2], count, g_, W(1), values);
  }

  void run(int64_t task, const Buffers<W>& x) const {
    const int64_t i = task % query_blocks() * query_rows, rows = g_.t - i < query_rows ? g_.t - i : query_rows;
    const int64_t head = task / query_blocks() % g_.h, batch = task / query_blocks() / g_.h;
    const int64_t key_head = batch * g_.hk + g_.key_head(head);
    const W* const keys = x.keys + key_head * g_.key_blocks() * g_.d * block_keys;
    const W* const values = x.values + key_head * g_.s * g_.padded;
    copy_rows(head_row<T>(q_, batch, head, i), q_.strides[2], rows, g_, static_cast<W>(o_.scale), x.q);
    for (int64_t r = 0; r < rows; ++r) x.maximum[r] = lowest, x.sum[r] = 0;
    const int64_t end = g_.visible(i + rows - 1);
    for (int64_t j = 0; j < end; j += key_columns) {
      const int64_t columns = end - j < key_columns ? end - j : key_columns;
      for (int64_t c = 0; c < columns; c += block_keys) {
        const int64_t needed =
            columns - c < block_keys ? (columns - c + panel_step - 1) / panel_step * panel_step : block_keys;
        panel_product<W>(rows, needed, g_.d, x.q, g_.padded, 1, keys + (j + c) * g_.d, block_keys, x.scores + c,
                         key_columns, false);
      }
      for (int64_t r = 0; r < rows; ++r) softmax_row(batch, head, i + r, j, columns, r, x);
      panel_product<W>(rows, g_.padded, columns, x.scores, key_columns, 1, values + j * g_.padded, g_.padded, x.out,
                       g_.padded, j > 0);
    }
    for (int64_t r = 0; r < rows; ++r) finish_row(batch, head, i + r, r, end > 0, x);
  }

 private:
  static constexpr W lowest = -static_cast<W>(__builtin_inff());

  int64_t query_blocks() const { return (g_.t + query_rows - 1) / query_rows; }

  // Scores of keys j … become e^(score − maximum); what earlier tiles added up is scaled to the new maximum.
  void softmax_row(int64_t batch, int64_t head, int64_t i, int64_t j, int64_t columns, int64_t r,
                   const Buffers<W>& x) const {
    W* const row = x.scores + r * key_columns;
    const int64_t visible = g_.visible(i) - j, n = visible < 0 ? 0 : visible < columns ? visible : columns;
    if (o_.mask) add_mask(*o_.mask, batch, head, i, j, n, row);
    V most(lowest);
    for_lanes<V>(n, [&](int64_t c, auto part) { most = max(within(load(row + c, part), V(lowest), part), most); });
    const W before = x.maximum[r], tile = horizontal_max(most), now = tile > before ? tile : before;
    const W shift = now == lowest ? 0 : now;  // nothing seen yet: every weight is e^−∞ = 0
    V sum(W(0));
    for_lanes<V>(n, [&](int64_t c, auto part) {
      const V weight = exp(load(row + c, part) - V(shift));
      store(row + c, weight, part);
      sum = sum + within(weight, V(W(0)), part);
    });
    for (int64_t c = n; c < columns; ++c) row[c] = 0;
    if (o_.dropout > 0) {
      dropout_factors(g_, o_, batch, head, i, j, n, x.factors);
      for_lanes<V>(
          n, [&](int64_t c, auto part) { store(row + c, load(row + c, part) * load(x.factors + c, part), part); });
    }
    x.maximum[r] = now;
    if (j == 0 || now == before) {
      x.sum[r] += horizontal_sum(sum);
      return;
    }
    const V rescale = exp(V(before - shift));
    x.sum[r] = horizontal_max(fma(V(x.sum[r]), rescale, V(horizontal_sum(sum))));
    W* const out = x.out + r * g_.padded;
    for_lanes<V>(g_.padded, [&](int64_t c, auto part) { store(out + c, load(out + c, part) * rescale, part); });
  }

  // A query that sees no key has out = 0 and lse = −∞.
  void finish_row(int64_t batch, int64_t head, int64_t i, int64_t r, bool any, const Buffers<W>& x) const {
    T* const to = head_row<T>(out_, batch, head, i);
    const W* const from = x.out + r * g_.padded;
    const bool seen = any && x.sum[r] != 0;  // a NaN is seen
    const V inverse(seen ? W(1) / x.sum[r] : W(0));
    for_lanes<V>(g_.d,
                 [&](int64_t c, auto part) { store(to + c, seen ? load(from + c, part) * inverse : V(W(0)), part); });
    lse_.as<W>()[(batch * g_.h + head) * g_.t + i] = seen ? x.maximum[r] + horizontal_max(log(V(x.sum[r]))) : lowest;
  }

  Geometry g_;
  const View &q_, &k_, &v_, &out_, &lse_;
  const AttentionOptions& o_;
};

}  // namespace
}  // namespace heads

template <class T>
void attention(const View& q, const View& k, const View& v, const View& out, const View& lse,
               const AttentionOptions& options, Workspace workspace, StreamHandle stream) {
  const heads::Forward<T> forward(q, k, v, out, lse, options);
  const auto buffers = [&](int worker) {
    return heads::Buffers<Statistic<T>>(workspace.data, forward.geometry(), worker);
  };
  parallel_for(stream, forward.copies(), [&](int64_t task, int worker) { forward.copy(task, buffers(worker)); });
  parallel_for(stream, forward.tasks(), [&](int64_t task, int worker) { forward.run(task, buffers(worker)); });
}

size_t attention_workspace(const View& q, const View& k, bool backward, int threads) {
  const heads::Geometry g(q, k, false);
  const auto bytes = [&]<class T>(T) {
    if (backward) return heads::backward_workspace<T>(g, threads);
    const heads::Buffers<Statistic<T>> b(nullptr, g, 0);
    return b.shared + b.per_thread * static_cast<size_t>(threads);
  };
  switch (q.dtype) {
    case DType::f64: return bytes(double{});
    case DType::f16: return bytes(f16{});
    case DType::bf16: return bytes(bf16{});
    default: return bytes(float{});
  }
}

SG_FOR_FLOATS(attention, const View&, const View&, const View&, const View&, const View&, const AttentionOptions&,
              Workspace, StreamHandle)

}  // namespace sg::kernels::SG_ISA

// Attention forward by tiles with a running softmax (Dao et al., "FlashAttention", 2022): no (t, s) matrix exists, and
// tiles that a causal mask hides are never computed. A task is a block of queries of one head.
#include "kernels/cpu/attention.h"

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/runtime/parallel.h"

namespace sg::kernels::SG_ISA {
namespace heads {
namespace {

constexpr int64_t query_rows = 64;
constexpr int64_t key_columns = 256;

template <class W>
struct Buffers {
  W* scores;         // (query_rows, key_columns)
  W* out;            // (query_rows, d), not yet divided by the sum
  W *maximum, *sum;  // (query_rows)
  W* factors;        // (key_columns), dropout
  W *q, *k, *v;      // widened rows

  Buffers(Carver& carver, int64_t d)
      : scores(carver.take<W>(query_rows * key_columns)),
        out(carver.take<W>(query_rows * d)),
        maximum(carver.take<W>(query_rows)),
        sum(carver.take<W>(query_rows)),
        factors(carver.take<W>(key_columns)),
        q(carver.take<W>(query_rows * d)),
        k(carver.take<W>(key_columns * d)),
        v(carver.take<W>(key_columns * d)) {}
};

template <class T>
class Forward {
 public:
  using W = Statistic<T>;
  using V = Lanes<W>;

  Forward(const View& q, const View& k, const View& v, const View& out, const View& lse,
          const AttentionOptions& options)
      : g_(q, k, options.causal), q_(q), k_(k), v_(v), out_(out), lse_(lse), o_(options) {}

  int64_t tasks() const { return g_.b * g_.h * blocks(); }

  void run(int64_t task, Buffers<W> x) const {
    const int64_t i = task % blocks() * query_rows, rows = g_.t - i < query_rows ? g_.t - i : query_rows;
    const int64_t head = task / blocks() % g_.h, batch = task / blocks() / g_.h, d = g_.d;
    const auto q = wide_rows<T>(q_, batch, head, i, rows, x.q);
    for (int64_t r = 0; r < rows; ++r) x.maximum[r] = lowest, x.sum[r] = 0;
    const int64_t end = g_.visible(i + rows - 1);
    for (int64_t j = 0; j < end; j += key_columns) {
      const int64_t columns = end - j < key_columns ? end - j : key_columns;
      const auto k = wide_rows<T>(k_, batch, g_.key_head(head), j, columns, x.k);
      const auto v = wide_rows<T>(v_, batch, g_.key_head(head), j, columns, x.v);
      product<W>(rows, columns, d, q.data, q.ld, false, k.data, k.ld, true, x.scores, columns, false);
      for (int64_t r = 0; r < rows; ++r) softmax_row(batch, head, i + r, j, columns, r, x);
      product<W>(rows, d, columns, x.scores, columns, false, v.data, v.ld, false, x.out, d, j > 0);
    }
    for (int64_t r = 0; r < rows; ++r) finish_row(batch, head, i + r, r, end > 0, x);
  }

 private:
  static constexpr W lowest = -static_cast<W>(__builtin_inff());

  int64_t blocks() const { return (g_.t + query_rows - 1) / query_rows; }

  // Scores of keys j … become e^(score − maximum); what earlier tiles added up is scaled to the new maximum.
  void softmax_row(int64_t batch, int64_t head, int64_t i, int64_t j, int64_t columns, int64_t r,
                   const Buffers<W>& x) const {
    W* row = x.scores + r * columns;
    const int64_t visible = g_.visible(i) - j, n = visible < 0 ? 0 : visible < columns ? visible : columns;
    const V scale(static_cast<W>(o_.scale));
    V most(lowest);
    for_lanes<V>(n, [&](int64_t c, auto part) { store(row + c, load(row + c, part) * scale, part); });
    if (o_.mask) add_mask(*o_.mask, batch, head, i, j, n, row);
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
    W* out = x.out + r * g_.d;
    for_lanes<V>(g_.d, [&](int64_t c, auto part) { store(out + c, load(out + c, part) * rescale, part); });
  }

  // A query that sees no key has out = 0 and lse = −∞.
  void finish_row(int64_t batch, int64_t head, int64_t i, int64_t r, bool any, const Buffers<W>& x) const {
    T* to = head_row<T>(out_, batch, head, i);
    const W* from = x.out + r * g_.d;
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

template <class T>
size_t bytes_per_thread(int64_t d) {
  Carver count(nullptr);
  Buffers<Statistic<T>>(count, d);
  return count.bytes();
}

}  // namespace
}  // namespace heads

template <class T>
void attention(const View& q, const View& k, const View& v, const View& out, const View& lse,
               const AttentionOptions& options, Workspace workspace, StreamHandle stream) {
  const heads::Forward<T> forward(q, k, v, out, lse, options);
  const size_t per_thread = heads::bytes_per_thread<T>(q.shape[3]);
  parallel_for(stream, forward.tasks(), [&](int64_t task, int worker) {
    Carver carver(static_cast<char*>(workspace.data) + per_thread * static_cast<size_t>(worker));
    forward.run(task, heads::Buffers<Statistic<T>>(carver, q.shape[3]));
  });
}

size_t attention_workspace(const View& q, const View& k, bool backward, int threads) {
  const auto bytes = [&]<class T>(T) {
    if (backward) return heads::backward_workspace<T>(heads::Geometry(q, k, false), threads);
    return heads::bytes_per_thread<T>(q.shape[3]) * static_cast<size_t>(threads);
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

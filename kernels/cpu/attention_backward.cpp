// Attention backward by tiles, weights computed again from the scores and the saved lse. A task is one head: for each
// block of keys it walks the queries that see it, so dk and dv of the block and dq of the head add up in a fixed order.
#include "kernels/cpu/attention.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/runtime/parallel.h"

namespace sg::kernels::SG_ISA {
namespace heads {
namespace {

constexpr int64_t key_columns = 64;
constexpr int64_t query_rows = 256;

template <class W>
struct Buffers {
  W *weights, *gradient;  // (query_rows, key_columns): softmax weights and the gradient of the scores
  W* factors;             // (key_columns), dropout
  W* delta;               // (t): Σ d_out · out of each query
  W *q, *d_out, *dq;      // (t, d), unless the tensors are of type W themselves
  W *k, *v, *dk, *dv;     // (key_columns, d), likewise

  Buffers(Carver& carver, const Geometry& g, bool widened) {
    weights = carver.take<W>(query_rows * key_columns);
    gradient = carver.take<W>(query_rows * key_columns);
    factors = carver.take<W>(key_columns);
    delta = carver.take<W>(g.t);
    const int64_t head = widened ? g.t * g.d : 0, block = widened ? key_columns * g.d : 0;
    q = carver.take<W>(head), d_out = carver.take<W>(head), dq = carver.take<W>(head);
    k = carver.take<W>(block), v = carver.take<W>(block), dk = carver.take<W>(block), dv = carver.take<W>(block);
  }
};

template <class W>
struct Output {
  W* data;
  int64_t ld;
};

template <class W>
struct Shared {
  W *dk = nullptr, *dv = nullptr;
};

template <class T>
class Backward {
 public:
  using W = Statistic<T>;
  using V = Lanes<W>;
  static constexpr bool widened = !std::is_same_v<T, W>;

  // With fewer heads of keys than of queries every query head fills its own part of `shared`.
  Backward(const View& q, const View& k, const View& v, const View& out, const View& lse, const View& d_out,
           const View& dq, const View& dk, const View& dv, const AttentionOptions& options, Shared<W> shared)
      : g_(q, k, options.causal),
        q_(q),
        k_(k),
        v_(v),
        out_(out),
        lse_(lse),
        d_out_(d_out),
        dq_(dq),
        dk_(dk),
        dv_(dv),
        o_(options),
        shared_(shared) {}

  // One head.
  void run(int64_t task, const Buffers<W>& x) const {
    const int64_t head = task % g_.h, batch = task / g_.h;
    const auto q = wide_rows<T>(q_, batch, head, 0, g_.t, x.q),
               d_out = wide_rows<T>(d_out_, batch, head, 0, g_.t, x.d_out);
    const Output<W> dq = output(dq_, batch, head, 0, x.dq);
    for (int64_t i = 0; i < g_.t; ++i) {
      x.delta[i] = dot(d_out.data + i * d_out.ld, head_row<T>(out_, batch, head, i));
      zero(dq.data + i * dq.ld);
    }
    for (int64_t j = 0; j < g_.s; j += key_columns) {
      const int64_t columns = g_.s - j < key_columns ? g_.s - j : key_columns;
      block(batch, head, j, columns, q, d_out, dq, x);
    }
    if constexpr (widened) round_rows(x.dq, dq_, batch, head, 0, g_.t);
  }

  // One head of keys: the sum of the parts that its query heads made, in their order.
  void reduce(int64_t task, const W* parts, const View& out) const {
    const int64_t key_head = task % g_.hk, batch = task / g_.hk, group = g_.h / g_.hk;
    const W* first = parts + (batch * g_.h + key_head * group) * g_.s * g_.d;
    for (int64_t j = 0; j < g_.s; ++j) {
      T* to = head_row<T>(out, batch, key_head, j);
      for_lanes<V>(g_.d, [&](int64_t c, auto part) {
        V sum = load(first + j * g_.d + c, part);
        for (int64_t i = 1; i < group; ++i) sum = sum + load(first + (i * g_.s + j) * g_.d + c, part);
        store(to + c, sum, part);
      });
    }
  }

 private:
  // Where rows of a gradient add up.
  Output<W> output(const View& x, int64_t batch, int64_t head, int64_t first, W* buffer) const {
    if constexpr (widened) return {buffer, g_.d};
    else return {head_row<T>(x, batch, head, first), x.strides[2] >= g_.d ? x.strides[2] : g_.d};
  }

  void block(int64_t batch, int64_t head, int64_t j, int64_t columns, Rows<W> q, Rows<W> d_out, Output<W> dq,
             const Buffers<W>& x) const {
    const int64_t d = g_.d, key_head = g_.key_head(head);
    const auto k = wide_rows<T>(k_, batch, key_head, j, columns, x.k),
               v = wide_rows<T>(v_, batch, key_head, j, columns, x.v);
    Output<W> dk, dv;
    if (shared_.dk) {
      const int64_t at = ((batch * g_.h + head) * g_.s + j) * d;
      dk = {shared_.dk + at, d}, dv = {shared_.dv + at, d};
    } else {
      dk = output(dk_, batch, head, j, x.dk), dv = output(dv_, batch, head, j, x.dv);
    }
    const int64_t first = g_.first_query(j);
    for (int64_t r = 0; first >= g_.t && r < columns; ++r) zero(dk.data + r * dk.ld), zero(dv.data + r * dv.ld);
    for (int64_t i = first; i < g_.t; i += query_rows) {
      const int64_t rows = g_.t - i < query_rows ? g_.t - i : query_rows;
      const W *qi = q.data + i * q.ld, *di = d_out.data + i * d_out.ld;
      product<W>(rows, columns, d, qi, q.ld, false, k.data, k.ld, true, x.weights, columns, false);
      product<W>(rows, columns, d, di, d_out.ld, false, v.data, v.ld, true, x.gradient, columns, false);
      for (int64_t r = 0; r < rows; ++r) softmax_row(batch, head, i + r, j, columns, r, x);
      product<W>(columns, d, rows, x.weights, columns, true, di, d_out.ld, false, dv.data, dv.ld, i > first);
      product<W>(columns, d, rows, x.gradient, columns, true, qi, q.ld, false, dk.data, dk.ld, i > first);
      product<W>(rows, d, columns, x.gradient, columns, false, k.data, k.ld, false, dq.data + i * dq.ld, dq.ld, true);
    }
    if (widened && !shared_.dk) {
      round_rows(dk.data, dk_, batch, head, j, columns);
      round_rows(dv.data, dv_, batch, head, j, columns);
    }
  }

  // Scores become weights (with dropout, those that multiplied v), and the weights' gradient that of the raw products
  // q·k.
  void softmax_row(int64_t batch, int64_t head, int64_t i, int64_t j, int64_t columns, int64_t r,
                   const Buffers<W>& x) const {
    W *weights = x.weights + r * columns, *gradient = x.gradient + r * columns;
    const int64_t visible = g_.visible(i) - j, n = visible < 0 ? 0 : visible < columns ? visible : columns;
    const W lse = lse_.as<W>()[(batch * g_.h + head) * g_.t + i];
    const V scale(static_cast<W>(o_.scale)), delta(x.delta[i]);
    const V shift(lse == -static_cast<W>(__builtin_inff()) ? -lse : lse);  // a query that saw no key: weights 0
    for_lanes<V>(n, [&](int64_t c, auto part) { store(weights + c, load(weights + c, part) * scale, part); });
    if (o_.mask) add_mask(*o_.mask, batch, head, i, j, n, weights);
    if (o_.dropout > 0) dropout_factors(g_, o_, batch, head, i, j, n, x.factors);
    for_lanes<V>(n, [&](int64_t c, auto part) {
      const V weight = exp(load(weights + c, part) - shift);
      const V factor = o_.dropout > 0 ? load(x.factors + c, part) : V(W(1));
      store(weights + c, weight * factor, part);
      store(gradient + c, scale * weight * (load(gradient + c, part) * factor - delta), part);
    });
    for (int64_t c = n; c < columns; ++c) weights[c] = 0, gradient[c] = 0;
  }

  W dot(const W* a, const T* b) const {
    V sum(W(0));
    for_lanes<V>(g_.d, [&](int64_t c, auto part) { sum = fma(load(a + c, part), V(load(b + c, part)), sum); });
    return horizontal_sum(sum);
  }

  void zero(W* row) const {
    for_lanes<V>(g_.d, [&](int64_t c, auto part) { store(row + c, V(W(0)), part); });
  }

  void round_rows(const W* from, const View& to, int64_t batch, int64_t head, int64_t first, int64_t rows) const {
    for (int64_t i = 0; i < rows; ++i) {
      T* row = head_row<T>(to, batch, head, first + i);
      for_lanes<V>(g_.d, [&](int64_t c, auto part) { store(row + c, load(from + i * g_.d + c, part), part); });
    }
  }

  Geometry g_;
  const View &q_, &k_, &v_, &out_, &lse_, &d_out_, &dq_, &dk_, &dv_;
  const AttentionOptions& o_;
  Shared<W> shared_;
};

template <class T>
size_t bytes_per_thread(const Geometry& g) {
  Carver count(nullptr);
  Buffers<Statistic<T>>(count, g, Backward<T>::widened);
  return count.bytes();
}

// With fewer heads of keys: the query heads' own dk and dv, (b,h,s,d) each.
template <class T>
Shared<Statistic<T>> shared_parts(Carver& carver, const Geometry& g) {
  if (g.h == g.hk) return {};
  const int64_t n = g.b * g.h * g.s * g.d;
  Statistic<T>* const dk = carver.take<Statistic<T>>(n);
  return {dk, carver.take<Statistic<T>>(n)};
}

}  // namespace

template <class T>
size_t backward_workspace(const Geometry& g, int threads) {
  Carver count(nullptr);
  shared_parts<T>(count, g);
  return count.bytes() + bytes_per_thread<T>(g) * static_cast<size_t>(threads);
}

}  // namespace heads

template <class T>
void attention_backward(const View& q, const View& k, const View& v, const View& out, const View& lse,
                        const View& d_out, const View& dq, const View& dk, const View& dv,
                        const AttentionOptions& options, Workspace workspace, StreamHandle stream) {
  using W = Statistic<T>;
  const heads::Geometry g(q, k, options.causal);
  Carver carver(workspace.data);
  const heads::Shared<W> shared = heads::shared_parts<T>(carver, g);
  const size_t used = carver.bytes(), per_thread = heads::bytes_per_thread<T>(g);
  const heads::Backward<T> backward(q, k, v, out, lse, d_out, dq, dk, dv, options, shared);
  parallel_for(stream, g.b * g.h, [&](int64_t task, int worker) {
    Carver own(static_cast<char*>(workspace.data) + used + per_thread * static_cast<size_t>(worker));
    backward.run(task, heads::Buffers<W>(own, g, heads::Backward<T>::widened));
  });
  if (!shared.dk) return;
  parallel_for(stream, g.b * g.hk, [&](int64_t task, int) {
    backward.reduce(task, shared.dk, dk);
    backward.reduce(task, shared.dv, dv);
  });
}

template size_t heads::backward_workspace<float>(const Geometry&, int);
template size_t heads::backward_workspace<double>(const Geometry&, int);
template size_t heads::backward_workspace<f16>(const Geometry&, int);
template size_t heads::backward_workspace<bf16>(const Geometry&, int);
SG_FOR_FLOATS(attention_backward, const View&, const View&, const View&, const View&, const View&, const View&,
              const View&, const View&, const View&, const AttentionOptions&, Workspace, StreamHandle)

}  // namespace sg::kernels::SG_ISA

// Attention backward by tiles, weights computed again from the scores and the saved lse. A task is one head: for each
// block of keys it walks the queries that see it, so dk and dv of the block and dq of the head add up in a fixed order.
#include "kernels/cpu/attention.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/runtime/parallel.h"

namespace sg::kernels::SG_ISA {
namespace heads {
namespace {

constexpr int64_t query_rows = 96;

template <class W>
struct Buffers {
  W *parts_dk, *parts_dv;  // (b,h,s,padded), of all threads: with fewer heads of keys, each query head's own
  W *weights, *gradient;   // (query_rows, block_keys): softmax weights, and the gradient of the scores
  W* factors;              // (block_keys), dropout
  W* delta;                // (t): Σ d_out · out of each query
  W *q, *d_out, *dq;       // (t, padded)
  W *k, *dk, *dv;          // (block_keys, padded)
  W *k_turned, *v_turned;  // (d, block_keys)
  size_t shared, per_thread;

  Buffers(void* data, const Geometry& g, int worker) {
    Carver all(data);
    const int64_t parts = g.h == g.hk ? 0 : g.b * g.h * g.s * g.padded;
    parts_dk = all.take<W>(parts), parts_dv = all.take<W>(parts);
    shared = all.bytes();
    const auto take_own = [&](Carver own) {
      weights = own.take<W>(query_rows * block_keys), gradient = own.take<W>(query_rows * block_keys);
      factors = own.take<W>(block_keys), delta = own.take<W>(g.t);
      const int64_t head = g.t * g.padded, block = block_keys * g.padded;
      q = own.take<W>(head), d_out = own.take<W>(head), dq = own.take<W>(head);
      k = own.take<W>(block), dk = own.take<W>(block), dv = own.take<W>(block);
      k_turned = own.take<W>(g.d * block_keys), v_turned = own.take<W>(g.d * block_keys);
      return own.bytes();
    };
    per_thread = take_own(Carver(nullptr));
    if (data) take_own(Carver(static_cast<char*>(data) + shared + per_thread * static_cast<size_t>(worker)));
  }
};

template <class T>
class Backward {
 public:
  using W = Statistic<T>;
  using V = Lanes<W>;

  Backward(const View& q, const View& k, const View& v, const View& out, const View& lse, const View& d_out,
           const View& dq, const View& dk, const View& dv, const AttentionOptions& options)
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
        o_(options) {}

  const Geometry& geometry() const { return g_; }

  // One head.
  void run(int64_t task, const Buffers<W>& x) const {
    const int64_t head = task % g_.h, batch = task / g_.h;
    copy_rows(head_row<T>(q_, batch, head, 0), q_.strides[2], g_.t, g_, static_cast<W>(o_.scale), x.q);
    copy_rows(head_row<T>(d_out_, batch, head, 0), d_out_.strides[2], g_.t, g_, W(1), x.d_out);
    for (int64_t i = 0; i < g_.t; ++i) x.delta[i] = dot(x.d_out + i * g_.padded, head_row<T>(out_, batch, head, i));
    for (int64_t i = 0; i < g_.t * g_.padded; ++i) x.dq[i] = 0;
    for (int64_t j = 0; j < g_.s; j += block_keys) {
      block(batch, head, j, g_.s - j < block_keys ? g_.s - j : block_keys, x);
    }
    write_rows(x.dq, g_.t, g_, static_cast<W>(o_.scale), head_row<T>(dq_, batch, head, 0), dq_.strides[2]);
  }

  // One head of keys: the sum of the parts that its query heads made, in their order.
  void reduce(int64_t task, const W* parts, const View& out) const {
    const int64_t key_head = task % g_.hk, batch = task / g_.hk, group = g_.h / g_.hk, size = g_.s * g_.padded;
    const W* const first = parts + (batch * g_.h + key_head * group) * size;
    for (int64_t j = 0; j < g_.s; ++j) {
      T* const to = head_row<T>(out, batch, key_head, j);
      for_lanes<V>(g_.d, [&](int64_t c, auto part) {
        V sum = load(first + j * g_.padded + c, part);
        for (int64_t i = 1; i < group; ++i) sum = sum + load(first + i * size + j * g_.padded + c, part);
        store(to + c, sum, part);
      });
    }
  }

 private:
  void block(int64_t batch, int64_t head, int64_t j, int64_t columns, const Buffers<W>& x) const {
    const int64_t key_head = g_.key_head(head), at = ((batch * g_.h + head) * g_.s + j) * g_.padded, p = g_.padded;
    const T* const k = head_row<T>(k_, batch, key_head, j);
    copy_rows(k, k_.strides[2], columns, g_, W(1), x.k);
    copy_transposed(k, k_.strides[2], columns, g_, x.k_turned);
    copy_transposed(head_row<T>(v_, batch, key_head, j), v_.strides[2], columns, g_, x.v_turned);
    const bool shared = g_.h != g_.hk;
    W *const dk = shared ? x.parts_dk + at : x.dk, *const dv = shared ? x.parts_dv + at : x.dv;
    for (int64_t i = 0; i < columns * p; ++i) dk[i] = 0, dv[i] = 0;
    for (int64_t i = g_.first_query(j); i < g_.t; i += query_rows) {
      const int64_t rows = g_.t - i < query_rows ? g_.t - i : query_rows;
      const W *const q = x.q + i * p, *const d_out = x.d_out + i * p;
      panel_product<W>(rows, block_keys, g_.d, q, p, 1, x.k_turned, block_keys, x.weights, block_keys, false);
      panel_product<W>(rows, block_keys, g_.d, d_out, p, 1, x.v_turned, block_keys, x.gradient, block_keys, false);
      for (int64_t r = 0; r < rows; ++r) softmax_row(batch, head, i + r, j, columns, r, x);
      panel_product<W>(columns, p, rows, x.weights, 1, block_keys, d_out, p, dv, p, true);
      panel_product<W>(columns, p, rows, x.gradient, 1, block_keys, q, p, dk, p, true);
      panel_product<W>(rows, p, columns, x.gradient, block_keys, 1, x.k, p, x.dq + i * p, p, true);
    }
    if (shared) return;
    write_rows(dk, columns, g_, W(1), head_row<T>(dk_, batch, head, j), dk_.strides[2]);
    write_rows(dv, columns, g_, W(1), head_row<T>(dv_, batch, head, j), dv_.strides[2]);
  }

  // Scores become weights (with dropout, those that multiplied v), and the weights' gradient the scores' own.
  void softmax_row(int64_t batch, int64_t head, int64_t i, int64_t j, int64_t columns, int64_t r,
                   const Buffers<W>& x) const {
    W *const weights = x.weights + r * block_keys, *const gradient = x.gradient + r * block_keys;
    const int64_t visible = g_.visible(i) - j, n = visible < 0 ? 0 : visible < columns ? visible : columns;
    const W lse = lse_.as<W>()[(batch * g_.h + head) * g_.t + i];
    const V delta(x.delta[i]), shift(lse == -static_cast<W>(__builtin_inff()) ? -lse : lse);  // saw no key: weights 0
    if (o_.mask) add_mask(*o_.mask, batch, head, i, j, n, weights);
    if (o_.dropout > 0) dropout_factors(g_, o_, batch, head, i, j, n, x.factors);
    for_lanes<V>(n, [&](int64_t c, auto part) {
      const V weight = exp(load(weights + c, part) - shift);
      const V factor = o_.dropout > 0 ? load(x.factors + c, part) : V(W(1));
      store(weights + c, weight * factor, part);
      store(gradient + c, weight * (load(gradient + c, part) * factor - delta), part);
    });
    for (int64_t c = n; c < columns; ++c) weights[c] = 0, gradient[c] = 0;
  }

  W dot(const W* a, const T* b) const {
    V sum(W(0));
    for_lanes<V>(g_.d, [&](int64_t c, auto part) { sum = fma(load(a + c, part), V(load(b + c, part)), sum); });
    return horizontal_sum(sum);
  }

  Geometry g_;
  const View &q_, &k_, &v_, &out_, &lse_, &d_out_, &dq_, &dk_, &dv_;
  const AttentionOptions& o_;
};

}  // namespace

template <class T>
size_t backward_workspace(const Geometry& g, int threads) {
  const Buffers<Statistic<T>> b(nullptr, g, 0);
  return b.shared + b.per_thread * static_cast<size_t>(threads);
}

}  // namespace heads

template <class T>
void attention_backward(const View& q, const View& k, const View& v, const View& out, const View& lse,
                        const View& d_out, const View& dq, const View& dk, const View& dv,
                        const AttentionOptions& options, Workspace workspace, StreamHandle stream) {
  const heads::Backward<T> backward(q, k, v, out, lse, d_out, dq, dk, dv, options);
  const heads::Geometry& g = backward.geometry();
  const auto buffers = [&](int worker) { return heads::Buffers<Statistic<T>>(workspace.data, g, worker); };
  parallel_for(stream, g.b * g.h, [&](int64_t task, int worker) { backward.run(task, buffers(worker)); });
  if (g.h == g.hk) return;
  parallel_for(stream, g.b * g.hk, [&](int64_t task, int) {
    backward.reduce(task, buffers(0).parts_dk, dk);
    backward.reduce(task, buffers(0).parts_dv, dv);
  });
}

template size_t heads::backward_workspace<float>(const Geometry&, int);
template size_t heads::backward_workspace<double>(const Geometry&, int);
template size_t heads::backward_workspace<f16>(const Geometry&, int);
template size_t heads::backward_workspace<bf16>(const Geometry&, int);
SG_FOR_FLOATS(attention_backward, const View&, const View&, const View&, const View&, const View&, const View&,
              const View&, const View&, const View&, const AttentionOptions&, Workspace, StreamHandle)

}  // namespace sg::kernels::SG_ISA

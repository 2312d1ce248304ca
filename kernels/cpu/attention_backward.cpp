// Attention backward by tiles, weights computed again from the scores and the saved lse. A task is one head: for each
// block of queries it walks the keys that they see, so dq of the block and dk and dv of the head add up in a fixed
// order.
#include "kernels/cpu/attention.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/runtime/parallel.h"

namespace sg::kernels::SG_ISA {
namespace heads {
namespace {

template <class W>
struct Buffers {
  W *parts_dk, *parts_dv;      // (b,h,s,padded), of all threads: with fewer heads of keys, each query head's own
  W *k, *v, *dk, *dv;          // (s, padded)
  W *q, *d_out, *dq;           // (width, padded)
  W *q_turned, *d_out_turned;  // (padded, width)
  W *weights, *gradient;       // (key_block, width): softmax weights, and the gradient of the scores
  W *rows, *turned;            // (key_block, width), for mask and dropout
  W *lse, *delta;              // (width), of each query; delta = Σ d_out · out
  size_t shared, per_thread;

  Buffers(void* data, const Geometry& g, int worker) {
    Carver all(data);
    const bool grouped = g.h != g.hk;
    const int64_t parts = grouped ? g.b * g.h * g.s * g.padded : 0;
    parts_dk = all.take<W>(parts), parts_dv = all.take<W>(parts);
    shared = all.bytes();
    const auto take_own = [&](Carver own) {
      const int64_t head = g.s * g.padded, queries = g.width * g.padded, tile = key_block * g.width;
      k = own.take<W>(head), v = own.take<W>(head);
      dk = own.take<W>(grouped ? 0 : head), dv = own.take<W>(grouped ? 0 : head);
      q = own.take<W>(queries), d_out = own.take<W>(queries), dq = own.take<W>(queries);
      q_turned = own.take<W>(queries), d_out_turned = own.take<W>(queries);
      weights = own.take<W>(tile), gradient = own.take<W>(tile);
      rows = own.take<W>(tile), turned = own.take<W>(tile);
      lse = own.take<W>(g.width), delta = own.take<W>(g.width);
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
    const int64_t head = task % g_.h, batch = task / g_.h, key_head = g_.key_head(head), size = g_.s * g_.padded;
    // Met by one block of queries alone, values and gradients stay in their view.
    const bool grouped = g_.h != g_.hk, once = g_.query_blocks() == 1, read = in_view<T>(g_) && once;
    const bool written = read && !grouped;
    const auto gradient_rows = [&](const View& view, W* parts, W* own) {
      return written ? rows_of<T>(view, batch, head, 0) : Rows<W>{grouped ? parts + task * size : own, g_.padded};
    };
    const Keys keys{copy_rows<T>(k_, batch, key_head, 0, g_.s, g_, x.k),
                    read ? rows_of<T>(v_, batch, key_head, 0) : copy_rows<T>(v_, batch, key_head, 0, g_.s, g_, x.v),
                    gradient_rows(dk_, x.parts_dk, x.dk), gradient_rows(dv_, x.parts_dv, x.dv)};
    if (!once) {
      for (int64_t n = 0; n < size; ++n) keys.dk.data[n] = 0, keys.dv.data[n] = 0;
    }
    for (int64_t i = 0; i < g_.t; i += query_block) add_queries(Tile(g_, batch, head, i, 0), keys, x);
    if (grouped || written) return;
    write_rows<T>(keys.dk.data, g_.s, g_, dk_, batch, head, 0);
    write_rows<T>(keys.dv.data, g_.s, g_, dv_, batch, head, 0);
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
  struct Keys {
    Rows<W> k, v, dk, dv;  // (s, d) of one head
  };

  // A block of queries: its dq, and what it adds to dk and dv of the head.
  void add_queries(const Tile& first, const Keys& keys, const Buffers<W>& x) const {
    copy_queries<T>(q_, first, g_, static_cast<W>(o_.scale), x.q, x.q_turned);
    copy_queries<T>(d_out_, first, g_, W(1), x.d_out, x.d_out_turned);
    copy_statistics(first, x);
    const int64_t end = g_.visible(first.i + first.queries - 1);
    const bool written = in_view<T>(g_) && end > 0 && g_.s <= key_block, again = g_.query_blocks() > 1;
    const Rows<W> q{x.q, g_.padded}, d_out{x.d_out, g_.padded};
    const Rows<W> dq = written ? rows_of<T>(dq_, first.batch, first.head, first.i) : Rows<W>{x.dq, g_.padded};
    for (int64_t j = 0; j < end; j += key_block) {
      const Tile tile(g_, first.batch, first.head, first.i, j);
      score_product(tile, g_, keys.k.from(j), x.q_turned, x.weights);
      score_product(tile, g_, keys.v.from(j), x.d_out_turned, x.gradient);
      if (o_.mask) add_mask(tile, g_, *o_.mask, x.rows, x.turned, x.weights);
      if (o_.dropout > 0) dropout_factors(tile, g_, o_, x.rows, x.turned);
      for (int64_t r = 0; r < tile.queries; r += lanes_in<V>) softmax_column(Column<W>(tile, r), x);
      add_over_queries(tile, g_, x.weights, d_out, keys.dv.from(j), again);
      add_over_queries(tile, g_, x.gradient, q, keys.dk.from(j), again);
      add_over_keys(tile, g_, x.gradient, keys.k.from(j), dq, j > 0);
    }
    if (written) return;
    if (end == 0) {
      for (int64_t n = 0; n < first.queries * g_.padded; ++n) x.dq[n] = 0;
    }
    write_rows<T>(x.dq, first.queries, g_, dq_, first.batch, first.head, first.i);
  }

  // lse and delta of a block of queries, zeros behind its last.
  void copy_statistics(const Tile& tile, const Buffers<W>& x) const {
    const W* const lse = lse_.as<W>() + (tile.batch * g_.h + tile.head) * g_.t + tile.i;
    const T* out = head_row<T>(out_, tile.batch, tile.head, tile.i);
    for (int64_t r = 0; r < tile.queries; ++r, out += out_.strides[2]) {
      const W* const d_out = x.d_out + r * g_.padded;
      V sum(W(0));
      for_lanes<V>(g_.d, [&](int64_t c, auto part) { sum = fma(load(d_out + c, part), V(load(out + c, part)), sum); });
      x.delta[r] = horizontal_sum(sum);
      x.lse[r] = lse[r] == Column<W>::lowest ? -lse[r] : lse[r];  // saw no key: weights e^(score − ∞) = 0
    }
    for (int64_t r = tile.queries; r < g_.width; ++r) x.delta[r] = 0, x.lse[r] = 0;
  }

  // Scores become weights (with dropout, those that multiplied v), and the weights' gradient that of q·kᵀ.
  void softmax_column(const Column<W>& column, const Buffers<W>& x) const {
    const V lse = load(x.lse + column.r, Full{}), delta = load(x.delta + column.r, Full{});
    const V scale(static_cast<W>(o_.scale));
    for (int64_t n = 0; n < column.end; ++n) {
      W *const weights = x.weights + n * g_.width + column.r, *const gradient = x.gradient + n * g_.width + column.r;
      V score = load(weights, Full{});
      if (n >= column.open) score = column.hide(score, n);
      const V weight = weight_of(score - lse);
      const V factor = o_.dropout > 0 ? load(x.turned + n * g_.width + column.r, Full{}) : V(W(1));
      store(weights, weight * factor, Full{});
      store(gradient, weight * scale * (load(gradient, Full{}) * factor - delta), Full{});
    }
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

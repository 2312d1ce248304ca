// Attention backward by tiles, weights computed again from the scores and the saved lse. A task is
// a group of keys of one head: for each block of queries it walks the keys of the group that they
// see, so dk and dv of the group and its part of dq add up in a fixed order. Where heads have
// several groups, their parts of dq are added at the end.
#include "kernels/cpu/attention.h"
#include "kernels/cpu/runtime/parallel.h"
#include "kernels/entries.h"

namespace sg::kernels::SG_ISA {
namespace heads {
namespace {

template <class W>
struct Buffers {
  W *parts_dk,
      *parts_dv;  // (b,h,s,padded), of all threads: with fewer heads of keys, each query head's own
  W* parts_dq;    // (b,h,groups,t,padded), of all threads: with several groups of keys
  W *k, *v, *dk, *dv;          // (s, padded)
  W *q, *d_out, *dq;           // (width, padded)
  W *q_turned, *d_out_turned;  // (padded, width)
  W *weights, *gradient;  // (key_block, width): softmax weights, and the gradient of the scores
  W *rows, *turned;       // (key_block, width), for mask and dropout
  W *lse, *delta;         // (width), of each query; delta = Σ d_out · out
  size_t shared, per_thread;

  Buffers(void* data, const Geometry& g, int worker) {
    Carver all(data);
    const bool grouped = g.h != g.hk;
    const int64_t parts = grouped ? g.b * g.h * g.s * g.padded : 0;
    parts_dk = all.take<W>(parts), parts_dv = all.take<W>(parts);
    parts_dq = all.take<W>(g.groups > 1 ? g.b * g.h * g.groups * g.t * g.padded : 0);
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
    if (data)
      take_own(
          Carver(static_cast<char*>(data) + shared + per_thread * static_cast<size_t>(worker)));
  }
};

template <class T>
class Backward {
 public:
  using W = Statistic<T>;
  using V = Lanes<W>;

  Backward(const View& q,
           const View& k,
           const View& v,
           const View& out,
           const View& lse,
           const View& d_out,
           const View& dq,
           const View& dk,
           const View& dv,
           const AttentionOptions& options)
      : g_(q, k, options.causal, options.window),
        groups_(plan::key_groups(g_.all_heads())),
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
  int64_t tasks() const { return g_.b * g_.h * g_.groups; }

  // One group of keys of one head.
  void run(int64_t task, const Buffers<W>& x) const {
    const int64_t all = task / g_.groups, group = task % g_.groups;
    const int64_t head = all % g_.h, batch = all / g_.h, key_head = g_.key_head(head);
    const int64_t begin = groups_.begin[group], end = groups_.begin[group + 1], count = end - begin;
    // Met by one block of queries alone, values and gradients stay in their view.
    const bool grouped = g_.h != g_.hk, once = g_.query_blocks() == 1,
               read = in_view<T>(g_) && once;
    const bool written = read && !grouped;
    const auto gradient_rows = [&](const View& view, W* parts, W* own) {
      if (written)
        return rows_of<T>(view, batch, head, begin);
      return Rows<W>{grouped ? parts + (all * g_.s + begin) * g_.padded : own, g_.padded};
    };
    const Keys keys{group,
                    begin,
                    end,
                    count > 0 ? divide_up(count, divide_up(count, key_block)) : key_block,
                    copy_rows<T>(k_, batch, key_head, begin, count, g_, x.k),
                    read ? rows_of<T>(v_, batch, key_head, begin)
                         : copy_rows<T>(v_, batch, key_head, begin, count, g_, x.v),
                    gradient_rows(dk_, x.parts_dk, x.dk),
                    gradient_rows(dv_, x.parts_dv, x.dv)};
    if (!once) {
      for (int64_t n = 0; n < count * g_.padded; ++n)
        keys.dk.data[n] = 0, keys.dv.data[n] = 0;
    }
    for (int64_t i = 0; i < g_.t; i += g_.block)
      add_queries(Tile(g_, batch, head, i, begin, end), keys, x);
    if (grouped || written)
      return;
    write_rows<T>(keys.dk.data, count, g_, dk_, batch, head, begin);
    write_rows<T>(keys.dv.data, count, g_, dv_, batch, head, begin);
  }

  // Some queries of all heads' (they are of one block): dq is the sum of the parts that groups of
  // keys made.
  void join_groups(int64_t row, const W* parts) const {
    const int64_t blocks = divide_up(g_.t, plan::joined_queries), all = row / blocks;
    const int64_t first = row % blocks * plan::joined_queries;
    const int64_t count = clamp(g_.t - first, plan::joined_queries), size = g_.t * g_.padded;
    const int64_t last_of_block = clamp(first / g_.block * g_.block + g_.block, g_.t) - 1;
    int64_t groups = 1;
    while (groups < g_.groups && groups_.begin[groups] < g_.visible(last_of_block))
      ++groups;
    for (int64_t i = first; i < first + count; ++i) {
      const W* const part = parts + all * g_.groups * size + i * g_.padded;
      T* const to = head_row<T>(dq_, all / g_.h, all % g_.h, i);
      for_lanes<V>(g_.d, [&](int64_t c, auto lanes) {
        V sum = load(part + c, lanes);
        for (int64_t group = 1; group < groups; ++group)
          sum = sum + load(part + group * size + c, lanes);
        store(to + c, sum, lanes);
      });
    }
  }

  // One head of keys: the sum of the parts that its query heads made, in their order.
  void reduce(int64_t task, const W* parts, const View& out) const {
    const int64_t key_head = task % g_.hk, batch = task / g_.hk, group = g_.h / g_.hk,
                  size = g_.s * g_.padded;
    const W* const first = parts + (batch * g_.h + key_head * group) * size;
    for (int64_t j = 0; j < g_.s; ++j) {
      T* const to = head_row<T>(out, batch, key_head, j);
      for_lanes<V>(g_.d, [&](int64_t c, auto part) {
        V sum = load(first + j * g_.padded + c, part);
        for (int64_t i = 1; i < group; ++i)
          sum = sum + load(first + i * size + j * g_.padded + c, part);
        store(to + c, sum, part);
      });
    }
  }

 private:
  struct Keys {
    int64_t group, begin, end;
    int64_t step;          // keys of a tile: all about equal
    Rows<W> k, v, dk, dv;  // (end − begin, d) of one head
  };

  // A block of queries: its dq, and what it adds to dk and dv of the keys.
  void add_queries(const Tile& first, const Keys& keys, const Buffers<W>& x) const {
    const int64_t end = clamp(g_.visible(first.i + first.queries - 1), keys.end);
    if (end <= keys.begin && keys.group > 0)
      return;
    copy_queries<T>(q_, first, g_, static_cast<W>(o_.scale), x.q, x.q_turned);
    copy_queries<T>(d_out_, first, g_, W(1), x.d_out, x.d_out_turned);
    copy_statistics(first, x);
    const bool several = g_.groups > 1, again = g_.query_blocks() > 1;
    const bool written = in_view<T>(g_) && end > 0 && g_.s <= key_block && !several;
    const Rows<W> q{x.q, g_.padded}, d_out{x.d_out, g_.padded};
    const Rows<W> dq = several   ? part_of_dq(first, keys.group, x)
                       : written ? rows_of<T>(dq_, first.batch, first.head, first.i)
                                 : Rows<W>{x.dq, g_.padded};
    const int64_t begin = first_tile(first, keys, again);
    for (int64_t j = begin; j < end; j += keys.step) {
      const int64_t tile_end = clamp(j + keys.step, keys.end);
      const Tile tile(g_, first.batch, first.head, first.i, j, tile_end);
      const int64_t at = j - keys.begin;
      score_product(tile, g_, keys.k.from(at), x.q_turned, x.weights);
      score_product(tile, g_, keys.v.from(at), x.d_out_turned, x.gradient);
      if (o_.mask)
        add_mask(tile, g_, *o_.mask, x.rows, x.turned, x.weights);
      if (o_.dropout > 0)
        dropout_factors(tile, g_, o_, x.rows, x.turned);
      for (int64_t r = 0; r < tile.queries; r += lanes_in<V>)
        softmax_column(Column<W>(tile, r), x);
      add_over_queries(tile, g_, x.weights, d_out, keys.dv.from(at), again);
      add_over_queries(tile, g_, x.gradient, q, keys.dk.from(at), again);
      add_over_keys(tile, g_, x.gradient, keys.k.from(at), dq, j > begin);
    }
    if (end <= begin) {
      for (int64_t n = 0; n < first.queries * g_.padded; ++n)
        dq.data[n] = 0;
    }
    if (several || written)
      return;
    write_rows<T>(x.dq, first.queries, g_, dq_, first.batch, first.head, first.i);
  }

  // Where a block's tiles begin: those that the window hides from all its queries are left out,
  // but where dk and dv aren't zero yet.
  int64_t first_tile(const Tile& first, const Keys& keys, bool zeroed) const {
    const int64_t hidden = g_.hidden(first.i) - keys.begin;
    return !zeroed || hidden <= 0 ? keys.begin : keys.begin + hidden / keys.step * keys.step;
  }

  Rows<W> part_of_dq(const Tile& tile, int64_t group, const Buffers<W>& x) const {
    const int64_t part = (tile.batch * g_.h + tile.head) * g_.groups + group;
    return {x.parts_dq + (part * g_.t + tile.i) * g_.padded, g_.padded};
  }

  // lse and delta of a block of queries, zeros behind its last.
  void copy_statistics(const Tile& tile, const Buffers<W>& x) const {
    const W* const lse = lse_.as<W>() + (tile.batch * g_.h + tile.head) * g_.t + tile.i;
    const T* out = head_row<T>(out_, tile.batch, tile.head, tile.i);
    for (int64_t r = 0; r < tile.queries; ++r, out += out_.strides[2]) {
      const W* const d_out = x.d_out + r * g_.padded;
      V sum(W(0));
      for_lanes<V>(g_.d, [&](int64_t c, auto part) {
        sum = fma(load(d_out + c, part), V(load(out + c, part)), sum);
      });
      x.delta[r] = horizontal_sum(sum);
      x.lse[r] =
          lse[r] == Column<W>::lowest ? -lse[r] : lse[r];  // saw no key: weights e^(score − ∞) = 0
    }
    for (int64_t r = tile.queries; r < g_.width; ++r)
      x.delta[r] = 0, x.lse[r] = 0;
  }

  // Scores become weights (with dropout, those that multiplied v), and the weights' gradient that
  // of q·kᵀ.
  void softmax_column(const Column<W>& column, const Buffers<W>& x) const {
    const V lse = load(x.lse + column.r, Full{}), delta = load(x.delta + column.r, Full{});
    const V scale(static_cast<W>(o_.scale));
    for (int64_t n = 0; n < column.end; ++n) {
      W *const weights = x.weights + n * g_.width + column.r, *const gradient = x.gradient +
                                                                                n * g_.width +
                                                                                column.r;
      V score = load(weights, Full{});
      if (n >= column.open)
        score = column.hide(score, n);
      if (n < column.closed)
        score = column.hide_far(score, n);
      const V weight = weight_of(score - lse);
      const V factor = o_.dropout > 0 ? load(x.turned + n * g_.width + column.r, Full{}) : V(W(1));
      store(weights, weight * factor, Full{});
      store(gradient, weight * scale * (load(gradient, Full{}) * factor - delta), Full{});
    }
  }

  Geometry g_;
  plan::KeyGroups groups_;
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
void attention_backward(const View& q,
                        const View& k,
                        const View& v,
                        const View& out,
                        const View& lse,
                        const View& d_out,
                        const View& dq,
                        const View& dk,
                        const View& dv,
                        const AttentionOptions& options,
                        Workspace workspace,
                        StreamHandle stream) {
  const heads::Backward<T> backward(q, k, v, out, lse, d_out, dq, dk, dv, options);
  const heads::Geometry& g = backward.geometry();
  const auto buffers = [&](int worker) {
    return heads::Buffers<Statistic<T>>(workspace.data, g, worker);
  };
  parallel_for(stream, backward.tasks(), [&](int64_t task, int worker) {
    backward.run(task, buffers(worker));
  });
  if (g.groups > 1) {
    const Statistic<T>* const parts = buffers(0).parts_dq;
    parallel_for(stream, g.b * g.h * divide_up(g.t, plan::joined_queries), [&](int64_t rows, int) {
      backward.join_groups(rows, parts);
    });
  }
  if (g.h == g.hk)
    return;
  parallel_for(stream, g.b * g.hk, [&](int64_t task, int) {
    backward.reduce(task, buffers(0).parts_dk, dk);
    backward.reduce(task, buffers(0).parts_dv, dv);
  });
}

template size_t heads::backward_workspace<float>(const Geometry&, int);
template size_t heads::backward_workspace<double>(const Geometry&, int);
template size_t heads::backward_workspace<f16>(const Geometry&, int);
template size_t heads::backward_workspace<bf16>(const Geometry&, int);
SG_FOR_FLOATS(attention_backward)

}  // namespace sg::kernels::SG_ISA

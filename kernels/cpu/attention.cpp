// Attention forward by tiles with a running softmax (Dao et al., "FlashAttention", 2022): no (t, s)
// matrix exists, and little is computed of what a causal mask hides. A task is a block of queries
// of one head; it copies the keys and values that it meets, which costs a few hundredths of their
// products and saves tasks and memory between them.
#include "kernels/cpu/attention.h"

#include "kernels/cpu/runtime/parallel.h"
#include "kernels/entries.h"

namespace sg::kernels::SG_ISA {
namespace heads {
namespace {

template <class W>
struct Buffers {
  W *q, *out;                  // (width, padded); out is not yet divided by the sum
  W* q_turned;                 // (padded, width)
  W *keys, *values;            // (key_block, padded)
  W *scores, *rows, *turned;   // (key_block, width); the last two for mask and dropout
  W *maximum, *sum, *rescale;  // (width), of each query
  size_t per_thread;

  Buffers(void* data, const Geometry& g, int worker) {
    const auto take = [&](Carver own) {
      const int64_t queries = g.width * g.padded, tile = key_block * g.width;
      q = own.take<W>(queries), out = own.take<W>(queries), q_turned = own.take<W>(queries);
      keys = own.take<W>(key_block * g.padded), values = own.take<W>(key_block * g.padded);
      scores = own.take<W>(tile), rows = own.take<W>(tile), turned = own.take<W>(tile);
      maximum = own.take<W>(g.width), sum = own.take<W>(g.width), rescale = own.take<W>(g.width);
      return own.bytes();
    };
    per_thread = take(Carver(nullptr));
    if (data)
      take(Carver(static_cast<char*>(data) + per_thread * static_cast<size_t>(worker)));
  }
};

template <class T>
class Forward {
 public:
  using W = Statistic<T>;
  using V = Lanes<W>;

  Forward(const View& q,
          const View& k,
          const View& v,
          const View& out,
          const View& lse,
          const AttentionOptions& options)
      : g_(q, k, options.causal, options.window),
        q_(q),
        k_(k),
        v_(v),
        out_(out),
        lse_(lse),
        o_(options) {}

  const Geometry& geometry() const { return g_; }
  int64_t tasks() const { return g_.b * g_.h * g_.query_blocks(); }
  // Under a causal mask the last queries come first: they take longest.
  ThreadPool::Deal deal() const {
    return g_.causal && g_.query_blocks() > 1 ? ThreadPool::Deal::in_order
                                              : ThreadPool::Deal::shares;
  }

  void run(int64_t task, const Buffers<W>& x) const {
    const auto [of_all, block] = deal() == ThreadPool::Deal::in_order
                                     ? in_order(task)
                                     : Place{task / g_.query_blocks(), task % g_.query_blocks()};
    const int64_t i = block * g_.block, head = of_all % g_.h, batch = of_all / g_.h;
    const Tile first(g_, batch, head, i, 0, g_.s);
    copy_queries<T>(q_, first, g_, static_cast<W>(o_.scale), x.q, x.q_turned);
    for (int64_t r = 0; r < g_.width; ++r)
      x.maximum[r] = Column<W>::lowest, x.sum[r] = 0;
    const int64_t end = g_.visible(i + first.queries - 1);
    const int64_t begin = g_.hidden(i) / key_block * key_block;
    for (int64_t j = begin; j < end; j += key_block)
      add_tile(Tile(g_, batch, head, i, j, g_.s), j > begin, x);
    finish(first, x);
  }

 private:
  struct Place {
    int64_t head, block;
  };
  // The latter half of all heads' blocks, then the latter half of what is left, and so on; within a
  // half head by head, whose keys and values then stay in cache.
  Place in_order(int64_t task) const {
    const int64_t heads = g_.b * g_.h;
    int64_t end = g_.query_blocks(), begin = end / 2;
    for (; task >= heads * (end - begin); begin = end / 2)
      task -= heads * (end - begin), end = begin;
    return {task / (end - begin), end - 1 - task % (end - begin)};
  }

  void add_tile(const Tile& tile, bool again, const Buffers<W>& x) const {
    const int64_t key_head = g_.key_head(tile.head);
    const bool once = in_view<T>(g_) && g_.query_blocks() == 1;
    const Rows<W> keys =
        once ? rows_of<T>(k_, tile.batch, key_head, tile.j)
             : copy_rows<T>(k_, tile.batch, key_head, tile.j, tile.keys, g_, x.keys);
    const Rows<W> values = copy_rows<T>(v_, tile.batch, key_head, tile.j, tile.keys, g_, x.values);
    score_product(tile, g_, keys, x.q_turned, x.scores);
    if (o_.mask)
      add_mask(tile, g_, *o_.mask, x.rows, x.turned, x.scores);
    if (o_.dropout > 0)
      dropout_factors(tile, g_, o_, x.rows, x.turned);
    for (int64_t r = 0; r < tile.queries; r += lanes_in<V>)
      softmax_column(Column<W>(tile, r), x);
    if (again)
      rescale_out(tile, x);
    add_over_keys(tile, g_, x.scores, values, Rows<W>{x.out, g_.padded}, again);
  }

  // Scores become e^(score − maximum), with dropout times its factors; `rescale` is for what
  // earlier tiles added up under a lower maximum.
  void softmax_column(const Column<W>& column, const Buffers<W>& x) const {
    W* const scores = x.scores + column.r;
    for (int64_t n = column.open; n < column.end; ++n) {
      store(scores + n * g_.width, column.hide(load(scores + n * g_.width, Full{}), n), Full{});
    }
    for (int64_t n = 0; n < column.closed; ++n) {
      const V score = load(scores + n * g_.width, Full{});
      store(scores + n * g_.width, column.hide_far(score, n), Full{});
    }
    const V before = load(x.maximum + column.r, Full{}),
            now = max(largest(scores, column.end), before);
    // Nothing seen yet: every weight is e^−∞ = 0.
    const V shift = select(now == V(Column<W>::lowest), V(W(0)), now);
    V sum(W(0));
    for (int64_t n = 0; n < column.end; ++n) {
      const V weight = weight_of(load(scores + n * g_.width, Full{}) - shift);
      const V factor = o_.dropout > 0 ? load(x.turned + n * g_.width + column.r, Full{}) : V(W(1));
      store(scores + n * g_.width, weight * factor, Full{});
      sum = sum + weight;
    }
    const V rescale = weight_of(before - shift);
    store(x.maximum + column.r, now, Full{});
    store(x.rescale + column.r, rescale, Full{});
    store(x.sum + column.r, fma(load(x.sum + column.r, Full{}), rescale, sum), Full{});
  }

  // Of n rows; a NaN is left out, the sum has it. Four at a time, as one would wait for the other.
  V largest(const W* scores, int64_t n) const {
    V most[4] = {
        V(Column<W>::lowest), V(Column<W>::lowest), V(Column<W>::lowest), V(Column<W>::lowest)};
    int64_t x = 0;
    for (; x + 4 <= n; x += 4) {
      for (int64_t u = 0; u < 4; ++u)
        most[u] = max(load(scores + (x + u) * g_.width, Full{}), most[u]);
    }
    for (; x < n; ++x)
      most[0] = max(load(scores + x * g_.width, Full{}), most[0]);
    return max(max(most[0], most[1]), max(most[2], most[3]));
  }

  void rescale_out(const Tile& tile, const Buffers<W>& x) const {
    for (int64_t r = 0; r < tile.queries; ++r) {
      if (x.rescale[r] == 1)
        continue;
      const V factor(x.rescale[r]);
      W* const out = x.out + r * g_.padded;
      for_lanes<V>(g_.padded, [&](int64_t c, auto part) {
        store(out + c, load(out + c, part) * factor, part);
      });
    }
  }

  // A query that sees no key has out = 0 and lse = −∞.
  void finish(const Tile& tile, const Buffers<W>& x) const {
    W* const lse = lse_.as<W>() + (tile.batch * g_.h + tile.head) * g_.t + tile.i;
    for_lanes<V>(tile.queries, [&](int64_t r, auto part) {
      const V sum = load(x.sum + r, Full{});
      store(lse + r,
            select(sum == V(W(0)), V(Column<W>::lowest), load(x.maximum + r, Full{}) + log(sum)),
            part);
    });
    T* to = head_row<T>(out_, tile.batch, tile.head, tile.i);
    const W* from = x.out;
    for (int64_t r = 0; r < tile.queries; ++r, to += out_.strides[2], from += g_.padded) {
      const bool seen = x.sum[r] != 0;  // a NaN is seen
      const V inverse(seen ? 1 / x.sum[r] : 0);
      for_lanes<V>(g_.d, [&](int64_t c, auto part) {
        store(to + c, seen ? load(from + c, part) * inverse : V(W(0)), part);
      });
    }
  }

  Geometry g_;
  const View &q_, &k_, &v_, &out_, &lse_;
  const AttentionOptions& o_;
};

}  // namespace
}  // namespace heads

template <class T>
void attention(const View& q,
               const View& k,
               const View& v,
               const View& out,
               const View& lse,
               const AttentionOptions& options,
               Workspace workspace,
               StreamHandle stream) {
  const heads::Forward<T> forward(q, k, v, out, lse, options);
  const auto run = [&](int64_t task, int worker) {
    forward.run(task, heads::Buffers<Statistic<T>>(workspace.data, forward.geometry(), worker));
  };
  parallel_for(stream, forward.tasks(), run, forward.deal());
}

size_t attention_workspace(const View& q, const View& k, bool backward, int threads) {
  const heads::Geometry g(q, k, false, 0);
  const auto bytes = [&]<class T>(T) {
    if (backward)
      return heads::backward_workspace<T>(g, threads);
    const heads::Buffers<Statistic<T>> b(nullptr, g, 0);
    return b.per_thread * static_cast<size_t>(threads);
  };
  switch (q.dtype) {
    case DType::f64: return bytes(double{});
    case DType::f16: return bytes(f16{});
    case DType::bf16: return bytes(bf16{});
    default: return bytes(float{});
  }
}

SG_FOR_FLOATS(attention)

}  // namespace sg::kernels::SG_ISA

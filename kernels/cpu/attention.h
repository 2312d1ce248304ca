// What attention's forward and backward share: the geometry of heads and tiles, dense copies of
// rows, the products of a tile, masks and dropout.
//
// A tile is a block of queries by a block of keys of one head, computed in the wide type (f32, f64
// for f64). Its scores lie turned, keys by queries, so that a lane of a vector is a query: a
// softmax adds and compares whole vectors, and keys and values are read as they lie. Rows are
// copied first: in a view they are far apart, which would cost a page and a cache set for each. A
// copied row has `padded` elements, zeros behind its d; a copied block of queries is filled up with
// rows of zeros to whole panels. Rows that are met once stay in their view, where they can.
#pragma once
#include "kernels/cpu/carver.h"
#include "kernels/cpu/panel.h"
#include "kernels/cpu/philox.h"
#include "kernels/cpu/runtime/plan.h"
#include "kernels/cpu/vec.h"
#include "kernels/table.h"

namespace sg::kernels::SG_ISA::heads {

inline constexpr int64_t key_block = 64;  // of a tile; its queries: Geometry::block

SG_INLINE int64_t whole_panels(int64_t n) {
  return (n + panel_step - 1) / panel_step * panel_step;
}
SG_INLINE int64_t clamp(int64_t x, int64_t end) {
  return x < 0 ? 0 : x < end ? x : end;
}

struct Geometry {
  int64_t b, h, hk, t, s, d, padded;
  bool causal;
  int64_t window;  // keys that a query sees at most; 0: any
  int64_t block;   // queries of a tile
  int64_t width;   // of a row of scores: a block's queries, in whole panels
  int64_t groups;  // of keys, in backward

  Geometry(const View& q, const View& k, bool is_causal, int64_t its_window)
      : b(q.shape[0]),
        h(q.shape[1]),
        hk(k.shape[1]),
        t(q.shape[2]),
        s(k.shape[2]),
        d(q.shape[3]),
        padded(whole_panels(d)),
        causal(is_causal),
        window(is_causal ? its_window : 0),
        block(plan::query_block(all_heads())),
        width(whole_panels(clamp(t, block))),
        groups(plan::key_group_count(all_heads())) {}
  plan::Heads all_heads() const { return {b * h, t, s, d, causal}; }
  // Keys that query i sees: 0 … visible(i) − 1.
  int64_t visible(int64_t i) const { return causal ? clamp(i + s - t + 1, s) : s; }
  // Those before this are hidden from it.
  int64_t hidden(int64_t i) const { return window > 0 ? clamp(visible(i) - window, s) : 0; }
  int64_t key_head(int64_t head) const { return head / (h / hk); }
  int64_t query_blocks() const { return divide_up(t, block); }
};

// Queries i … and keys j … (before `end`) of one head. Inside, queries and keys are counted from
// the tile's first.
struct Tile {
  int64_t batch, head, i, queries, j, keys;
  int64_t shift;  // query r sees the keys before r + shift
  int64_t block;
  int64_t window;

  Tile(const Geometry& g,
       int64_t batch_row,
       int64_t its_head,
       int64_t first_query,
       int64_t first_key,
       int64_t end)
      : batch(batch_row),
        head(its_head),
        i(first_query),
        queries(clamp(g.t - i, g.block)),
        j(first_key),
        keys(clamp(end - j, key_block)),
        shift(g.causal ? i + g.s - g.t + 1 - j : keys),
        block(g.block),
        window(g.window) {}
  int64_t seen(int64_t r) const { return clamp(r + shift, keys); }
  // Keys before this are hidden from query r, too far back for the window.
  int64_t hidden(int64_t r) const { return window > 0 ? clamp(r + shift - window, keys) : 0; }
  // The panel of queries, by its first, that begins to see key x.
  int64_t first_panel(int64_t x) const {
    const int64_t r = x + 1 - shift;
    return r < 0 ? 0 : r / panel_step * panel_step;
  }
  // Rows of products to compute at once: few where the diagonal of a causal mask passes, so that
  // little of what it hides is computed.
  int64_t strip() const {
    return shift < keys ? panel_step : block > key_block ? block : key_block;
  }
};

// Row `first` of one head of a (b,h,t,d) view.
template <class T>
T* head_row(const View& x, int64_t batch, int64_t head, int64_t first) {
  return x.as<T>() + batch * x.strides[0] + head * x.strides[1] + first * x.strides[2];
}

// Rows as products take them: a copy, or those of a view.
template <class W>
struct Rows {
  W* data;
  int64_t stride;
  Rows from(int64_t row) const { return {data + row * stride, stride}; }
};

// Whether products can take rows of T in their view: these are of the wide type and of whole
// panels.
template <class T>
bool in_view(const Geometry& g) {
  return std::is_same_v<T, Statistic<T>> && g.d == g.padded;
}

// Rows of one head in their view, where in_view.
template <class T>
Rows<Statistic<T>> rows_of(const View& x, int64_t batch, int64_t head, int64_t first) {
  return {reinterpret_cast<Statistic<T>*>(head_row<T>(x, batch, head, first)), x.strides[2]};
}

// A copy (count, padded), in `out`, of rows from `first` on of one head.
template <class T>
Rows<Statistic<T>> copy_rows(const View& x,
                             int64_t batch,
                             int64_t head,
                             int64_t first,
                             int64_t count,
                             const Geometry& g,
                             Statistic<T>* out) {
  using V = Lanes<Statistic<T>>;
  const Rows<Statistic<T>> copy{out, g.padded};
  const T* rows = head_row<T>(x, batch, head, first);
  for (int64_t i = 0; i < count; ++i, rows += x.strides[2], out += g.padded) {
    for_lanes<V>(g.d, [&](int64_t c, auto part) { store(out + c, V(load(rows + c, part)), part); });
    for (int64_t c = g.d; c < g.padded; ++c)
      out[c] = 0;
  }
  return copy;
}

// Rows from `first` on of one head = from (count, padded), rounded.
template <class T>
void write_rows(const Statistic<T>* from,
                int64_t count,
                const Geometry& g,
                const View& x,
                int64_t batch,
                int64_t head,
                int64_t first) {
  using V = Lanes<Statistic<T>>;
  T* rows = head_row<T>(x, batch, head, first);
  for (int64_t i = 0; i < count; ++i, from += g.padded, rows += x.strides[2]) {
    for_lanes<V>(g.d, [&](int64_t c, auto part) { store(rows + c, load(from + c, part), part); });
  }
}

// A block of queries, or of their gradients: `rows` (queries, padded) and `turned` (padded, width)
// = scale · rowsᵀ.
template <class T>
void copy_queries(const View& x,
                  const Tile& tile,
                  const Geometry& g,
                  Statistic<T> scale,
                  Statistic<T>* rows,
                  Statistic<T>* turned) {
  copy_rows<T>(x, tile.batch, tile.head, tile.i, tile.queries, g, rows);
  const int64_t count = whole_panels(tile.queries);
  for (int64_t n = tile.queries * g.padded; n < count * g.padded; ++n)
    rows[n] = 0;
  turn(rows, g.padded, count, g.padded, scale, turned, g.width);
}

// scores (keys, width) = rows (keys, d) · turned, wherever a panel of queries sees one of
// panel_step keys.
template <class W>
void score_product(const Tile& tile, const Geometry& g, Rows<W> rows, const W* turned, W* scores) {
  const int64_t step = tile.strip(), end = whole_panels(tile.queries);
  for (int64_t x = 0; x < tile.keys; x += step) {
    const int64_t first = tile.first_panel(x);
    if (first >= end)
      break;
    panel_product<W>(clamp(tile.keys - x, step),
                     end - first,
                     g.d,
                     rows.from(x).data,
                     rows.stride,
                     1,
                     turned + first,
                     g.width,
                     scores + x * g.width + first,
                     g.width,
                     false);
  }
}

// out (queries, padded) (+)= weightsᵀ · rows (keys, padded).
template <class W>
void add_over_keys(const Tile& tile,
                   const Geometry& g,
                   const W* weights,
                   Rows<W> rows,
                   Rows<W> out,
                   bool accumulate) {
  const int64_t step = tile.strip();
  for (int64_t r = 0; r < tile.queries; r += step) {
    const int64_t count = clamp(tile.queries - r, step);
    panel_product<W>(count,
                     g.padded,
                     tile.seen(r + count - 1),
                     weights + r,
                     1,
                     g.width,
                     rows.data,
                     rows.stride,
                     out.from(r).data,
                     out.stride,
                     accumulate);
  }
}

// out (keys, padded) (+)= weights · rows (queries, padded), of keys that a query of the tile sees.
template <class W>
void add_over_queries(const Tile& tile,
                      const Geometry& g,
                      const W* weights,
                      Rows<W> rows,
                      Rows<W> out,
                      bool accumulate) {
  const int64_t step = tile.strip();
  for (int64_t x = 0; x < tile.keys; x += step) {
    const int64_t first = tile.first_panel(x);
    if (first >= tile.queries)
      break;
    panel_product<W>(clamp(tile.keys - x, step),
                     g.padded,
                     tile.queries - first,
                     weights + x * g.width + first,
                     g.width,
                     1,
                     rows.from(first).data,
                     rows.stride,
                     out.from(x).data,
                     out.stride,
                     accumulate);
  }
}

// e^x of a score less the maximum or lse; 0 where it would be subnormal, which takes the processor
// hundreds of cycles. So does e^−∞ by exp itself, and half of a tile on the diagonal is hidden.
template <class V>
SG_INLINE V weight_of(V x) {
  const V least(-87);
  return select(x < least, V(0), exp(max(least, x)));  // NaN passes
}

// Queries r … r + lanes − 1 of a tile's scores, and which of its keys a causal mask leaves them.
template <class W>
struct Column {
  using V = Lanes<W>;
  static constexpr W lowest = -static_cast<W>(__builtin_inff());
  int64_t r;
  int64_t closed;  // some query doesn't see keys before this, for its window
  int64_t open;    // no later query begins to see keys before this
  int64_t end;     // scores are computed as far as this; no query sees a key beyond

  Column(const Tile& tile, int64_t first)
      : r(first),
        closed(tile.hidden(r + lanes_in<V> - 1)),
        open(tile.seen(r)),
        end(clamp(whole_panels(tile.seen(r / panel_step * panel_step + panel_step - 1)),
                  tile.keys)) {
    alignas(64) static constexpr W numbers[panel_step] = {
        0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    seen_ = load(numbers, Full{}) + V(static_cast<W>(r + tile.shift));
    hidden_ = seen_ - V(static_cast<W>(tile.window));
    closed = clamp(closed, end);
  }
  // −∞ where key x is hidden.
  V hide(V score, int64_t x) const {
    return select(V(static_cast<W>(x)) < seen_, score, V(lowest));
  }
  // −∞ where the window hides key x.
  V hide_far(V score, int64_t x) const {
    return select(V(static_cast<W>(x)) < hidden_, V(lowest), score);
  }

 private:
  V seen_;    // keys before this, for each query
  V hidden_;  // keys from this on, for each query, where there is a window
};

// Reads a mask or draws dropout in the order of keys: fill_row(r, n, row) for the n keys that query
// r sees; turned (key_block, width) then lies as scores do. `rows` is (width, key_block).
template <class W, class F>
void turned_rows(const Tile& tile, const Geometry& g, W* rows, W* turned, F&& fill_row) {
  const int64_t count = whole_panels(tile.queries);
  for (int64_t r = 0; r < count; ++r) {
    const int64_t n = r < tile.queries ? tile.seen(r) : 0;
    if (n > 0)
      fill_row(r, n, rows + r * key_block);
    for (int64_t x = n; x < key_block; ++x)
      rows[r * key_block + x] = 0;
  }
  turn(rows, key_block, count, key_block, W(1), turned, g.width);
}

// The mask is added to the scores: −∞ where it hides a key, whatever the score. `rows` and `turned`
// as above.
template <class W>
void add_mask(
    const Tile& tile, const Geometry& g, const View& mask, W* rows, W* turned, W* scores) {
  using V = Lanes<W>;
  const V lowest(Column<W>::lowest);
  turned_rows(tile, g, rows, turned, [&](int64_t r, int64_t n, W* row) {
    const int64_t step = mask.strides[3];
    const int64_t at = tile.batch * mask.strides[0] + tile.head * mask.strides[1] +
                       (tile.i + r) * mask.strides[2] + tile.j * step;
    if (mask.dtype == DType::boolean) {
      const bool* visible = mask.as<bool>() + at;
      for (int64_t x = 0; x < n; ++x)
        row[x] = visible[x * step] ? 0 : Column<W>::lowest;
    } else {
      const float* bias = mask.as<float>() + at;
      for (int64_t x = 0; x < n; ++x)
        row[x] = bias[x * step];
    }
  });
  for (int64_t r = 0; r < tile.queries; r += lanes_in<V>) {
    const Column<W> column(tile, r);
    for (int64_t at = r; at < column.end * g.width + r; at += g.width) {
      const V bias = load(turned + at, Full{});
      store(scores + at, select(bias == lowest, lowest, load(scores + at, Full{}) + bias), Full{});
    }
  }
}

// turned = 0 where an attention weight is dropped, else 1/(1 − p), without branches, which none
// could foresee. `rows` and `turned` as above.
template <class W>
void dropout_factors(
    const Tile& tile, const Geometry& g, const AttentionOptions& o, W* rows, W* turned) {
  const W kept = 1 / (1 - static_cast<W>(o.dropout));
  const uint64_t sample = o.random.first_sample + static_cast<uint64_t>(tile.batch);
  turned_rows(tile, g, rows, turned, [&](int64_t r, int64_t n, W* row) {
    const int64_t first = (tile.head * g.t + tile.i + r) * g.s + tile.j, end = first + n;
    for (int64_t draws = first / 4 * 4; draws < end; draws += block_draws) {
      Words words[4];
      philox_block(o.random, sample, static_cast<uint64_t>(draws / 4), words);
      Vec stays[4];
      for (int j = 0; j < 4; ++j)
        stays[j] = select(uniform(words[j]) < Vec(o.dropout), Vec(0.0f), Vec(1.0f));
      float in_order[block_draws];
      interleave(stays, in_order);
      const int64_t from = draws < first ? first : draws,
                    to = draws + block_draws < end ? draws + block_draws : end;
      const float* const stay = in_order + (from - draws);
      W* const out = row + (from - first);
      for (int64_t x = 0; x < to - from; ++x)
        out[x] = stay[x] * kept;
    }
  });
}

template <class T>
size_t backward_workspace(const Geometry&, int threads);

}  // namespace sg::kernels::SG_ISA::heads

#include "kernels/cpu/runtime/plan.h"

#include <algorithm>

#include "kernels/table.h"

namespace sg::kernels::plan {
namespace {

// Equal tasks among threads: what the busiest of them has, in fair shares, at worst.
double worst_share(int64_t tasks) {
  double worst = 1;
  for (const int threads : even_threads) {
    const auto most = static_cast<double>(divide_up(tasks, threads));
    worst = std::max(worst, most * threads / static_cast<double>(tasks));
  }
  return worst;
}

// Bytes and operations that a task is worth its hand-out from.
constexpr int64_t row_elements = 16384;
constexpr int64_t update_elements = 8192;  // a few microseconds of work
constexpr double tile_flops = 1e6;
// What many threads gain is worth more, smaller tiles from here on: below, a whole product is over
// in a millisecond.
constexpr double even_tile_flops = 1.2e7, even_group_flops = 1e7;

// The largest tile that still keeps a few threads busy to the end. oneDNN's f32 kernel works on 48
// columns at a time.
Tiles few_tiles(const Product& p, bool halved) {
  constexpr int64_t sizes[][2] = {
      {512, 768}, {512, 384}, {256, 384}, {128, 384}, {128, 192}, {64, 192}, {64, 96}, {32, 96}};
  Tiles t;
  t.halved = halved;
  for (const auto& [m, n] : sizes) {
    const int64_t tile_m = round_up(divide_up(p.m, divide_up(p.m, m)), 8);
    const int64_t tile_n = round_up(divide_up(p.n, divide_up(p.n, n)), 48);
    const double flops =
        2.0 * static_cast<double>(tile_m * tile_n) * static_cast<double>(t.depth(p.k));
    if (t.tile_m > 0 && flops < tile_flops)
      break;
    t.tile_m = tile_m, t.tile_n = tile_n;
    t.tiles_m = divide_up(p.m, tile_m), t.tiles_n = divide_up(p.n, tile_n);
    // Two threads share an even number of tiles without a rest; many tiles leave little.
    const int64_t tiles = p.batch * t.tiles_m * t.tiles_n * t.parts();
    if (tiles >= 16 || (tiles >= 4 && tiles % 2 == 0))
      break;
  }
  return t;
}

// Elements that tasks read and write.
int64_t moved(const Product& p, const Tiles& t) {
  return t.tiles_n * p.m * p.k + t.tiles_m * p.n * p.k + (t.halved ? 3 : 1) * p.m * p.n;
}

// A weight gradient adds up over the rows of activations, of which each thread has written a share:
// cut along them, a thread reads what lies in its own cache, and all of it once. Worth it where the
// result is small beside the operands. A 16-bit result would be rounded twice.
Tiles few_or_halved_tiles(const Product& p) {
  const Tiles whole = few_tiles(p, false);
  if (!p.a_transposed || p.b_transposed || p.batch > 1 || p.k < 2 * 16 || p.item == 2)
    return whole;
  const Tiles halves = few_tiles(p, true);
  return moved(p, halves) < moved(p, whole) ? halves : whole;
}

// Tiles that 64 threads can share out evenly; none (tile_m = 0) where they would be too small.
// Among those the grid whose tasks copy least: each copies its rows of a and its columns of b.
Tiles even_tiles(const Product& p) {
  constexpr int64_t least_m = 32, least_n = 24, fewest = 56, least_side = 512;
  Tiles best;
  const bool flat = std::min({p.m, p.n, p.k}) < least_side;
  if (flat || p.flops() < even_tile_flops * fewest)
    return best;
  // Transposed f32 operands are turned before.
  const int64_t price_of_b = p.b_transposed && p.item == 2 ? 8 : 1;
  double least = 0;
  for (int64_t cuts_m = 1; cuts_m <= 64 && p.m >= cuts_m * least_m; cuts_m *= 2) {
    for (int64_t cuts_n = 1; cuts_n <= 64 && p.n >= cuts_n * least_n; cuts_n *= 2) {
      Tiles t;
      t.tile_m = round_up(divide_up(p.m, cuts_m), 8),
      t.tile_n = round_up(divide_up(p.n, cuts_n), 8);
      t.tiles_m = divide_up(p.m, t.tile_m), t.tiles_n = divide_up(p.n, t.tile_n);
      const double area = static_cast<double>(t.tile_m * t.tile_n);
      const double tiles = static_cast<double>(t.tiles_m * t.tiles_n);
      const double largest = area * tiles / (static_cast<double>(p.m) * static_cast<double>(p.n));
      if (2 * area * static_cast<double>(p.k) < even_tile_flops)
        break;
      if (worst_share(p.batch * t.tiles_m * t.tiles_n) * largest > even_share)
        continue;
      const double price = static_cast<double>(t.tiles_n * p.m + price_of_b * t.tiles_m * p.n);
      if (best.tile_m == 0 || price < least)
        best = t, least = price;
    }
  }
  return best;
}

}  // namespace

Chunks even_chunks(int64_t n, int64_t most, int64_t step) {
  const int64_t count = divide_up(n, most);
  if (count <= 1)
    return {n, most};
  for (int64_t unit = 64; unit > 1; unit /= 2) {
    const int64_t each = round_up(divide_up(n, round_up(count, unit)), step);
    if (2 * each >= most)
      return {n, std::min(each, most)};
  }
  return {n, most};
}

Chunks rows(int64_t rows, int64_t n) {
  return even_chunks(rows, std::max<int64_t>(1, row_elements / std::max<int64_t>(n, 1)));
}

Chunks elements(int64_t n) {
  return even_chunks(n, row_elements, 64);
}

Chunks update(int64_t n) {
  return even_chunks(n, 2 * update_elements, norm_chunk);
}

ColumnSums column_sums(int64_t rows, int64_t n) {
  constexpr int64_t least_rows = 8, many_rows = 1024;
  const int64_t chunks = rows >= many_rows ? 64 : 32;
  ColumnSums sums;
  sums.rows = {rows, std::max(divide_up(rows, chunks), least_rows)};
  sums.columns = even_chunks(n, rows >= many_rows ? 64 : 512, 16);
  return sums;
}

Tiles tiles(const Product& p) {
  const Tiles even = even_tiles(p);
  return even.tile_m > 0 ? even : few_or_halved_tiles(p);
}

Chunks second_halves(int64_t m, int64_t n) {
  return rows(m, n);
}

int64_t Heads::visible(int64_t query) const {
  return causal ? std::clamp<int64_t>(query + s - t + 1, 0, s) : s;
}
int64_t Heads::viewers(int64_t key) const {
  return causal ? t - std::clamp<int64_t>(key + t - s, 0, t) : t;
}

int64_t query_block(const Heads& h) {
  constexpr int64_t whole = 128, many_tasks = 192;
  const bool few = h.heads * divide_up(h.t, whole) < many_tasks && h.t >= 512;
  return few ? whole / 2 : whole;
}

int64_t key_group_count(const Heads& h) {
  constexpr int64_t least_keys = 128;
  const double flops =
      5.0 * static_cast<double>(h.t * h.s) * static_cast<double>(h.d);  // of one head, half hidden
  const auto small = [&](int64_t count) {
    return h.s < count * least_keys || flops < even_group_flops * static_cast<double>(count);
  };
  for (int64_t count = 1; count <= KeyGroups::most && !small(count); ++count) {
    if (worst_share(h.heads * count) <= even_share)
      return count;
  }
  return 1;
}

KeyGroups key_groups(const Heads& h) {
  constexpr int64_t step = 4;
  KeyGroups groups;
  groups.count = key_group_count(h);
  groups.begin[groups.count] = h.s;
  if (groups.count == 1)
    return groups;
  double pairs = 0, total = 0;
  for (int64_t key = 0; key < h.s; ++key)
    total += static_cast<double>(h.viewers(key));
  for (int64_t key = 0, group = 1; key < h.s && group < groups.count; key += step) {
    const double target = total * static_cast<double>(group) / static_cast<double>(groups.count);
    const double next = static_cast<double>(step * h.viewers(key + step / 2));
    if (pairs + next / 2 >= target)
      groups.begin[group++] = key;
    pairs += next;
  }
  return groups;
}

Classifier classifier(int64_t rows, int64_t vocabulary) {
  constexpr int64_t kept_bytes = 96 << 20, least_rows = 256, widest = 480, large_vocabulary = 16384;
  const int64_t most_groups = vocabulary >= large_vocabulary ? 64 : 16;
  Classifier c;
  const int64_t fitting = vocabulary > 0 ? kept_bytes / (4 * vocabulary) / 64 * 64 : least_rows;
  c.chunks = divide_up(rows, std::max(fitting, least_rows));
  c.chunk = c.chunks > 0 ? round_up(divide_up(rows, c.chunks), 16) : 0;
  const int64_t parts = most_groups * divide_up(vocabulary, most_groups * widest);
  c.width = parts > 0 ? round_up(divide_up(vocabulary, parts), 48) : 48;
  c.tiles = divide_up(vocabulary, c.width);
  c.group = divide_up(c.tiles, most_groups);
  c.groups = c.tiles > 0 ? divide_up(c.tiles, c.group) : 0;
  c.tile_rows = {c.chunk, vocabulary >= large_vocabulary ? 16 : 64};
  c.group_rows = vocabulary >= large_vocabulary ? even_chunks(c.chunk, 8) : Chunks{c.chunk, 16};
  return c;
}

}  // namespace sg::kernels::plan

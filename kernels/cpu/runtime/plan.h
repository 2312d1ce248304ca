// How kernels are cut into tasks. A cut depends on shapes alone, never on the number of threads, so
// bits don't either; and it is made such that up to 64 threads get equal shares of a large model's
// kernels. Kernels and the table of `bench_kernels --balance` use the same functions. Compiled
// once, without instruction-set flags.
#pragma once
#include <cstddef>
#include <cstdint>

#include "kernels/dtype.h"

namespace sg::kernels {

SG_INLINE constexpr int64_t divide_up(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}
SG_INLINE constexpr int64_t round_up(int64_t a, int64_t b) {
  return divide_up(a, b) * b;
}

namespace plan {

// The busiest thread may have this many times its fair share, for any of these numbers of threads.
inline constexpr double even_share = 1.15;
inline constexpr int even_threads[] = {2, 4, 8, 16, 32, 64};

// `n` items in chunks of `each`, the last one maybe shorter.
struct Chunks {
  int64_t n = 0, each = 1;
  SG_INLINE int64_t count() const { return divide_up(n, each); }
  SG_INLINE int64_t size(int64_t chunk) const {
    return n - chunk * each < each ? n - chunk * each : each;
  }
};

// Chunks of between half of `most` and `most` items, a multiple of `step` as `most` is, whose
// number divides well among threads.
Chunks even_chunks(int64_t n, int64_t most, int64_t step = 1);

// Kernels whose elements don't depend on each other: rows of n elements; elements of one row (of
// `rows`); an optimizer pass, cut along the chunks of the norm.
Chunks rows(int64_t rows, int64_t n);
Chunks elements(int64_t n);
Chunks update(int64_t n);

// Sums over the rows of a matrix: each chunk of rows into its own partial sums, then these, by
// strips of columns.
struct ColumnSums {
  Chunks rows, columns;
};
ColumnSums column_sums(int64_t rows, int64_t n);

// Columns of rows that are added up by id.
inline constexpr int64_t widest_strip = 256;
SG_INLINE Chunks strips(int64_t n) {
  return {n, widest_strip};
}

// A product of a batch of matrices: out (m,n) = a (m,k) · b (k,n), elements of `item` bytes.
struct Product {
  int64_t batch = 1, m = 0, n = 0, k = 0;
  bool a_transposed = false, b_transposed = false;
  size_t item = 4;
  double flops() const { return 2.0 * static_cast<double>(m) * static_cast<double>(n) * k * batch; }
};

struct Tiles {
  int64_t tile_m = 0, tile_n = 0;  // of a tile; at the lower and right edges less is left
  int64_t tiles_m = 0, tiles_n = 0;
  // k is cut in two: both halves of each tile are computed apart, the second in a matrix of its
  // own, then added.
  bool halved = false;

  int64_t parts() const { return halved ? 2 : 1; }
  int64_t depth(int64_t k) const {
    return halved ? round_up(divide_up(k, 2), 16) : k;
  }  // of the first part
};
Tiles tiles(const Product&);
Chunks second_halves(int64_t m, int64_t n);  // rows whose two halves are added

// Attention over `heads` (batch · heads) of t queries and s keys, d wide.
struct Heads {
  int64_t heads = 0, t = 0, s = 0, d = 0;
  bool causal = false;
  int64_t visible(int64_t query) const;  // keys that it sees
  int64_t viewers(int64_t key) const;    // queries that see it
};

// A task of forward is a block of queries of one head.
int64_t query_block(const Heads&);

// A task of backward is a group of keys of one head with all queries that see them: it has dk and
// dv whole, and its part of dq. Groups hold equal numbers of visible pairs. Their number doesn't
// depend on `causal`.
int64_t key_group_count(const Heads&);
struct KeyGroups {
  static constexpr int64_t most = 16;
  int64_t count = 1;
  int64_t begin[most + 1] = {};  // group g: keys begin[g] … begin[g + 1] − 1
};
KeyGroups key_groups(const Heads&);
// The parts of dq are added by rows of queries that divide any block of them.
inline constexpr int64_t joined_queries = 32;

// The loss with its classifier: chunks of rows, tiles of the vocabulary, and groups of tiles, each
// of which adds up its own part of dx.
struct Classifier {
  int64_t chunk = 0, chunks = 0;
  int64_t width = 48, tiles = 0;
  int64_t group = 0, groups = 0;
  Chunks tile_rows, group_rows;  // of a chunk: whose tiles, whose groups are joined
};
Classifier classifier(int64_t rows, int64_t vocabulary);

}  // namespace plan
}  // namespace sg::kernels

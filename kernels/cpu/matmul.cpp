// Products on a grid of tiles that the shape alone fixes, so that bits don't depend on the number
// of threads.
#include <utility>

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/panel.h"
#include "kernels/cpu/runtime/parallel.h"
#include "kernels/cpu/runtime/plan.h"
#include "kernels/cpu/runtime/turning.h"
#include "kernels/cpu/vec.h"
#include "kernels/entries.h"

namespace sg::kernels::SG_ISA {
namespace {

// One operand of a batch of matrices.
struct Batched {
  std::byte* data = nullptr;
  int64_t ld = 0;
  bool transposed = false;
  int64_t strides[max_rank] = {};  // of the batch dimensions, 0 where broadcast

  // Null where only the workspace is asked for, of a tensor without memory.
  std::byte* at(int64_t offset, int64_t i, int64_t j, size_t item) const {
    return data ? data +
                      (offset + (transposed ? j * ld + i : i * ld + j)) * static_cast<int64_t>(item)
                : nullptr;
  }
};

// `out` decides the number of batch dimensions; a and b may have fewer.
Batched batched(const View& x, int out_rank) {
  Batched r;
  r.data = x.as<std::byte>();
  const int64_t rows = x.size(-2), columns = x.size(-1), row_stride = x.stride(-2),
                column_stride = x.stride(-1);
  r.transposed = columns > 1 && column_stride != 1;
  const int64_t shortest = r.transposed ? rows : columns;
  r.ld = r.transposed ? column_stride : row_stride;
  if ((r.transposed ? columns : rows) <= 1 || r.ld < shortest)
    r.ld = shortest > 0 ? shortest : 1;
  for (int d = 0; d < x.rank - 2; ++d)
    r.strides[d + out_rank - x.rank] = x.shape[d] == 1 ? 0 : x.strides[d];
  return r;
}

struct Problem {
  int64_t m = 0, n = 0, k = 0;
  Batched a, b, out;
  int batch_rank = 0;
  int64_t batch_shape[max_rank] = {};
  int64_t batch = 1;    // matrices
  bool turned = false;  // out is dense by columns: outᵀ = bᵀ·aᵀ is computed
  plan::Tiles grid;
  // Tiles follow each other along a row of them: threads share out the rows of a, not b's columns.
  bool by_rows = false;

  int64_t tiles_of_matrix() const { return grid.tiles_m * grid.tiles_n; }
  int64_t tiles() const { return batch * tiles_of_matrix() * grid.parts(); }
  double flops() const { return 2.0 * static_cast<double>(m) * n * k * batch; }
};

View turn(View x) {
  const int i = x.rank - 2, j = x.rank - 1;
  const int64_t size = x.shape[i], stride = x.strides[i];
  x.shape[i] = x.shape[j], x.strides[i] = x.strides[j];
  x.shape[j] = size, x.strides[j] = stride;
  return x;
}

// (…,t,k)·(k,n): the last batch dimension becomes rows where one matrix follows on the other.
void fold_rows(Problem& p) {
  while (p.batch_rank > 0 && !p.a.transposed) {
    const int d = p.batch_rank - 1;
    const int64_t step_a = p.a.strides[d], step_out = p.out.strides[d];
    const bool follows = p.m == 1 ? step_a >= p.k && step_out >= p.n
                                  : step_a == p.m * p.a.ld && step_out == p.m * p.out.ld;
    if (p.b.strides[d] != 0 || !follows)
      return;
    if (p.m == 1)
      p.a.ld = step_a, p.out.ld = step_out;
    p.m *= p.batch_shape[d];
    p.batch_rank = d;
  }
}

template <class T>
Problem problem_of(const View& a, const View& b, const View& out) {
  const bool by_columns = out.size(-1) > 1 && out.stride(-1) != 1;
  if (by_columns) {
    Problem p = problem_of<T>(turn(b), turn(a), turn(out));
    p.turned = true;
    return p;
  }
  Problem p;
  p.m = out.size(-2), p.n = out.size(-1), p.k = a.size(-1);
  p.a = batched(a, out.rank), p.b = batched(b, out.rank), p.out = batched(out, out.rank);
  p.batch_rank = out.rank - 2;
  for (int d = 0; d < p.batch_rank; ++d)
    p.batch_shape[d] = out.shape[d];
  if (p.m > 0 && p.n > 0)
    fold_rows(p);
  for (int d = 0; d < p.batch_rank; ++d)
    p.batch *= p.batch_shape[d];
  if (p.m > 0 && p.n > 0 && p.batch > 0) {
    p.grid = plan::tiles({p.batch, p.m, p.n, p.k, p.a.transposed, p.b.transposed, sizeof(T)});
  }
  p.by_rows = p.m > p.n;  // the larger operand is read by one thread alone
  return p;
}

struct Place {
  int64_t row, column;
};
// In the grid of one matrix.
Place place_of(const Problem& p, int64_t tile) {
  const int64_t rows = p.grid.tiles_m, columns = p.grid.tiles_n;
  if (p.by_rows)
    return {tile / columns % rows, tile % columns};
  return {tile % rows, tile / rows % columns};
}

// `second` (m, n) is where second halves go.
Product tile_product(
    const Problem& p, int64_t tile, size_t item, bool accumulate, std::byte* second) {
  const int64_t part = tile / (p.batch * p.tiles_of_matrix());
  tile -= part * p.batch * p.tiles_of_matrix();
  const auto [row, column] = place_of(p, tile);
  const int64_t i = row * p.grid.tile_m, j = column * p.grid.tile_n;
  int64_t offset_a = 0, offset_b = 0, offset_out = 0;
  for (int64_t d = p.batch_rank - 1, rest = tile / p.tiles_of_matrix(); d >= 0;
       rest /= p.batch_shape[d--]) {
    const int64_t index = rest % p.batch_shape[d];
    offset_a += index * p.a.strides[d], offset_b += index * p.b.strides[d],
        offset_out += index * p.out.strides[d];
  }
  Product product;
  product.m = p.m - i < p.grid.tile_m ? p.m - i : p.grid.tile_m;
  product.n = p.n - j < p.grid.tile_n ? p.n - j : p.grid.tile_n;
  const int64_t depth = p.grid.depth(p.k), first = part * depth;
  product.k = part == 0 ? depth : p.k - first;
  product.a = {p.a.at(offset_a, i, first, item), p.a.ld, p.a.transposed};
  product.b = {p.b.at(offset_b, first, j, item), p.b.ld, p.b.transposed};
  if (part == 0)
    product.c = p.out.at(offset_out, i, j, item);
  else
    product.c = second ? second + (i * p.n + j) * static_cast<int64_t>(item) : nullptr;
  product.ldc = part == 0 ? p.out.ld : p.n;
  product.accumulate = accumulate && part == 0;
  return product;
}

// The turned product has its bias along the rows.
template <class T>
void add_row_bias(const Product& p, const T* bias) {
  using Wide = Statistic<T>;
  for (int64_t i = 0; i < p.m; ++i) {
    T* row = static_cast<T*>(p.c) + i * p.ldc;
    for (int64_t j = 0; j < p.n; ++j)
      row[j] = T(Wide(row[j]) + Wide(bias[i]));
  }
}

// Tiny matrices of a batch share a task.
constexpr double work_per_task = 1e6;
// Below this a product is over before another thread has woken up.
constexpr double work_for_threads = 2.5e5;

constexpr size_t whole_lines(size_t bytes) {
  return (bytes + 63) / 64 * 64;
}

// An operand as the tiles of a large product read it, in the workspace. Its rows don't begin a
// multiple of 4 KiB apart, which would put a column into one set of the cache.
int64_t turned_ld(int64_t columns) {
  return round_up(columns, 16) + 16;
}

template <class T>
bool turns_first(const Problem& p) {
  return plan::turns_first({p.batch, p.m, p.n, p.k, p.a.transposed, p.b.transposed, sizeof(T)},
                           p.grid);
}

template <class T>
size_t turned_bytes(const Batched& x, int64_t rows, int64_t columns) {
  return x.transposed ? whole_lines(static_cast<size_t>(rows * turned_ld(columns)) * sizeof(T)) : 0;
}
template <class T>
size_t turned_bytes(const Problem& p) {
  if (!turns_first<T>(p))
    return 0;
  return turned_bytes<T>(p.a, p.m, p.k) + turned_bytes<T>(p.b, p.k, p.n);
}

// x (rows, columns), stored by columns, at `to` by rows; with null memory nothing is copied.
template <class T>
Batched turned(
    const Batched& x, int64_t rows, int64_t columns, std::byte* to, StreamHandle stream) {
  if (!x.transposed)
    return x;
  Batched y = x;
  y.data = to, y.ld = turned_ld(columns), y.transposed = false;
  if (!to || !x.data)
    return y;
  const T* const from = reinterpret_cast<const T*>(x.data);
  T* const out = reinterpret_cast<T*>(to);
  if (rows < columns) {
    parallel_chunks(stream, plan::turned(columns), [&](int64_t begin, int64_t end, int) {
      SG_ISA::turn(from + begin * x.ld, x.ld, end - begin, rows, T(1), out + begin, y.ld);
    });
  } else {
    parallel_chunks(stream, plan::turned(rows), [&](int64_t begin, int64_t end, int) {
      SG_ISA::turn(from + begin, x.ld, columns, end - begin, T(1), out + begin * y.ld, y.ld);
    });
  }
  return y;
}

// The product that tiles compute.
template <class T>
Problem with_turned(Problem p, std::byte* memory, StreamHandle stream) {
  if constexpr (sizeof(T) == 4) {
    if (!turns_first<T>(p))
      return p;
    const size_t of_a = turned_bytes<T>(p.a, p.m, p.k);
    p.a = turned<T>(p.a, p.m, p.k, memory, stream);
    p.b = turned<T>(p.b, p.k, p.n, memory ? memory + of_a : nullptr, stream);
  }
  return p;
}

// The workspace: turned operands, the second halves, then each thread's scratch.
template <class T>
size_t second_bytes(const Problem& p) {
  return p.grid.halved ? whole_lines(static_cast<size_t>(p.m * p.n) * sizeof(T)) : 0;
}

template <class T>
size_t scratch_bytes(const Problem& p, bool accumulate, bool bias) {
  size_t most = 0;
  if (p.tiles() == 0)
    return most;
  // The four kinds of tile: whole, and cut at either edge or both; of each part of k.
  const int64_t across = p.by_rows ? p.grid.tiles_n : p.grid.tiles_m,
                last = p.tiles_of_matrix() - 1;
  for (const int64_t tile : {int64_t{0}, across - 1, last - (across - 1), last}) {
    for (int64_t part = 0; part < p.grid.parts(); ++part) {
      Product product = tile_product(p, tile + part * (last + 1), sizeof(T), accumulate, nullptr);
      product.bias = bias ? &p : nullptr;  // only looked at for being there
      const size_t bytes = gemm_scratch<T>(product);
      most = bytes > most ? bytes : most;
    }
  }
  return whole_lines(most);
}

template <class T>
void add_second_halves(const Problem& p, const std::byte* second, StreamHandle stream) {
  const T* const terms = reinterpret_cast<const T*>(second);
  parallel_chunks(stream, plan::second_halves(p.m, p.n), [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      T* const row = reinterpret_cast<T*>(p.out.at(0, i, 0, sizeof(T)));
      for_lanes<Lanes<T>>(p.n, [&](int64_t j, auto part) {
        store(row + j, load(row + j, part) + load(terms + i * p.n + j, part), part);
      });
    }
  });
}

}  // namespace

template <class T>
void matmul(const View& a,
            const View& b,
            const View& out,
            const MatmulOptions& options,
            Workspace workspace,
            StreamHandle stream) {
  const Problem asked = problem_of<T>(a, b, out);
  const int64_t tiles = asked.tiles();
  if (tiles == 0)
    return;
  auto* const memory = static_cast<std::byte*>(workspace.data);
  const size_t shared = turned_bytes<T>(asked) + second_bytes<T>(asked);
  std::byte *const second = memory + turned_bytes<T>(asked), *const scratch = memory + shared;
  const size_t scratch_each =
      (workspace.bytes - shared) / static_cast<size_t>(threads_of(stream)) / 64 * 64;
  const Problem p = with_turned<T>(asked, memory, stream);
  const T* bias = options.bias ? options.bias->as<T>() : nullptr;
  const double work = p.flops() / static_cast<double>(tiles);
  const int64_t per_task =
      work < work_per_task ? static_cast<int64_t>(work_per_task / (work + 1)) : 1;
  if (p.flops() < work_for_threads)
    stream = {};
  parallel_chunks(stream, tiles, per_task, [&](int64_t begin, int64_t end, int worker) {
    for (int64_t tile = begin; tile < end; ++tile) {
      Product product = tile_product(p, tile, sizeof(T), options.accumulate, second);
      const bool biased = bias && tile < tiles / p.grid.parts();
      if (biased && !p.turned)
        product.bias = bias + place_of(p, tile).column * p.grid.tile_n;
      gemm<T>(product, scratch + static_cast<size_t>(worker) * scratch_each);
      if (biased && p.turned)
        add_row_bias(product, bias + place_of(p, tile).row * p.grid.tile_m);
    }
  });
  if (p.grid.halved)
    add_second_halves<T>(p, second, stream);
}

size_t matmul_workspace(const View& a, const View& b, const View& out, int threads) {
  const auto bytes = [&]<class T>(T) {
    const Problem asked = problem_of<T>(a, b, out), p = with_turned<T>(asked, nullptr, {});
    size_t most = 0;
    for (const auto& [accumulate, bias] : {std::pair{false, false}, {false, true}, {true, false}}) {
      const size_t scratch = scratch_bytes<T>(p, accumulate, bias);
      most = scratch > most ? scratch : most;
    }
    return turned_bytes<T>(asked) + second_bytes<T>(asked) + most * static_cast<size_t>(threads);
  };
  switch (out.dtype) {
    case DType::f64: return bytes(double{});
    case DType::f16: return bytes(f16{});
    case DType::bf16: return bytes(bf16{});
    default: return bytes(float{});
  }
}

SG_FOR_FLOATS(matmul)

}  // namespace sg::kernels::SG_ISA

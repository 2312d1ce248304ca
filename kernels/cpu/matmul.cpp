// Products on a grid of tiles that the shape alone fixes, so that bits don't depend on the number of threads.
#include <utility>

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/runtime/parallel.h"
#include "kernels/cpu/vec.h"

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
    return data ? data + (offset + (transposed ? j * ld + i : i * ld + j)) * static_cast<int64_t>(item) : nullptr;
  }
};

// `out` decides the number of batch dimensions; a and b may have fewer.
Batched batched(const View& x, int out_rank) {
  Batched r;
  r.data = x.as<std::byte>();
  const int64_t rows = x.size(-2), columns = x.size(-1), row_stride = x.stride(-2), column_stride = x.stride(-1);
  r.transposed = columns > 1 && column_stride != 1;
  const int64_t shortest = r.transposed ? rows : columns;
  r.ld = r.transposed ? column_stride : row_stride;
  if ((r.transposed ? columns : rows) <= 1 || r.ld < shortest) r.ld = shortest > 0 ? shortest : 1;
  for (int d = 0; d < x.rank - 2; ++d) r.strides[d + out_rank - x.rank] = x.shape[d] == 1 ? 0 : x.strides[d];
  return r;
}

struct Problem {
  int64_t m = 0, n = 0, k = 0;
  Batched a, b, out;
  int batch_rank = 0;
  int64_t batch_shape[max_rank] = {};
  int64_t batch = 1;    // matrices
  bool turned = false;  // out is dense by columns: outᵀ = bᵀ·aᵀ is computed
  int64_t tile_m = 0, tile_n = 0;
  int64_t tiles_m = 0, tiles_n = 0;
  // Tiles follow each other along a row of them: threads share out the rows of a, not b's columns.
  bool by_rows = false;
  // k is cut in two: both halves of each tile are computed apart, the second in a matrix of its own, then added.
  bool halved = false;

  int64_t parts() const { return halved ? 2 : 1; }
  int64_t depth() const { return halved ? round_up(divide_up(k, 2), 16) : k; }  // of the first part
  int64_t tiles() const { return batch * tiles_m * tiles_n * parts(); }
  double flops() const { return 2.0 * static_cast<double>(m) * n * k * batch; }
  // Elements that tasks read and write.
  int64_t moved() const { return tiles_n * m * k + tiles_m * n * k + (halved ? 3 : 1) * m * n; }
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
    const bool follows =
        p.m == 1 ? step_a >= p.k && step_out >= p.n : step_a == p.m * p.a.ld && step_out == p.m * p.out.ld;
    if (p.b.strides[d] != 0 || !follows) return;
    if (p.m == 1) p.a.ld = step_a, p.out.ld = step_out;
    p.m *= p.batch_shape[d];
    p.batch_rank = d;
  }
}

// Two threads share an even number of tiles without a rest; many tiles leave little.
bool shared_well(int64_t tiles) { return tiles >= 16 || (tiles >= 4 && tiles % 2 == 0); }

// The largest tile that still keeps a few threads busy to the end; a task is worth its hand-out from about a million
// operations. oneDNN's f32 kernel works on 48 columns at a time.
void choose_tiles(Problem& p) {
  constexpr double least_work = 1e6;
  constexpr int64_t sizes[][2] = {{512, 768}, {512, 384}, {256, 384}, {128, 384},
                                  {128, 192}, {64, 192},  {64, 96},   {32, 96}};
  for (const auto& [m, n] : sizes) {
    const int64_t parts_m = divide_up(p.m, m), parts_n = divide_up(p.n, n);
    const int64_t tile_m = round_up(divide_up(p.m, parts_m), 8), tile_n = round_up(divide_up(p.n, parts_n), 48);
    if (p.tile_m > 0 && 2.0 * static_cast<double>(tile_m) * tile_n * p.depth() < least_work) break;
    p.tile_m = tile_m, p.tile_n = tile_n;
    p.tiles_m = divide_up(p.m, tile_m), p.tiles_n = divide_up(p.n, tile_n);
    if (shared_well(p.tiles())) break;
  }
}

// A weight gradient adds up over the rows of activations, of which each thread has written a share: cut along them, a
// thread reads what lies in its own cache, and all of it once. Worth it where the result is small beside the operands.
void choose_halves(Problem& p) {
  if (!p.a.transposed || p.b.transposed || p.batch > 1 || p.k < 2 * 16) return;
  Problem halves = p;
  halves.halved = true;
  halves.tile_m = 0;
  choose_tiles(halves);
  if (halves.moved() < p.moved()) p = halves;
}

template <class T>
Problem plan(const View& a, const View& b, const View& out) {
  const bool by_columns = out.size(-1) > 1 && out.stride(-1) != 1;
  if (by_columns) {
    Problem p = plan<T>(turn(b), turn(a), turn(out));
    p.turned = true;
    return p;
  }
  Problem p;
  p.m = out.size(-2), p.n = out.size(-1), p.k = a.size(-1);
  p.a = batched(a, out.rank), p.b = batched(b, out.rank), p.out = batched(out, out.rank);
  p.batch_rank = out.rank - 2;
  for (int d = 0; d < p.batch_rank; ++d) p.batch_shape[d] = out.shape[d];
  if (p.m > 0 && p.n > 0) fold_rows(p);
  for (int d = 0; d < p.batch_rank; ++d) p.batch *= p.batch_shape[d];
  if (p.m > 0 && p.n > 0 && p.batch > 0) {
    choose_tiles(p);
    if (sizeof(T) > 2) choose_halves(p);  // a 16-bit result would be rounded twice
  }
  p.by_rows = p.m > p.n;  // the larger operand is read by one thread alone
  return p;
}

struct Place {
  int64_t row, column;
};
// In the grid of one matrix.
Place place_of(const Problem& p, int64_t tile) {
  if (p.by_rows) return {tile / p.tiles_n % p.tiles_m, tile % p.tiles_n};
  return {tile % p.tiles_m, tile / p.tiles_m % p.tiles_n};
}

// `second` (m, n) is where second halves go.
Product tile_product(const Problem& p, int64_t tile, size_t item, bool accumulate, std::byte* second) {
  const int64_t part = tile / (p.batch * p.tiles_m * p.tiles_n);
  tile -= part * p.batch * p.tiles_m * p.tiles_n;
  const auto [row, column] = place_of(p, tile);
  const int64_t i = row * p.tile_m, j = column * p.tile_n;
  int64_t offset_a = 0, offset_b = 0, offset_out = 0;
  for (int64_t d = p.batch_rank - 1, rest = tile / (p.tiles_m * p.tiles_n); d >= 0; rest /= p.batch_shape[d--]) {
    const int64_t index = rest % p.batch_shape[d];
    offset_a += index * p.a.strides[d], offset_b += index * p.b.strides[d], offset_out += index * p.out.strides[d];
  }
  Product product;
  product.m = p.m - i < p.tile_m ? p.m - i : p.tile_m;
  product.n = p.n - j < p.tile_n ? p.n - j : p.tile_n;
  const int64_t first = part * p.depth();
  product.k = part == 0 ? p.depth() : p.k - first;
  product.a = {p.a.at(offset_a, i, first, item), p.a.ld, p.a.transposed};
  product.b = {p.b.at(offset_b, first, j, item), p.b.ld, p.b.transposed};
  if (part == 0) product.c = p.out.at(offset_out, i, j, item);
  else product.c = second ? second + (i * p.n + j) * static_cast<int64_t>(item) : nullptr;
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
    for (int64_t j = 0; j < p.n; ++j) row[j] = T(Wide(row[j]) + Wide(bias[i]));
  }
}

// Tiny matrices of a batch share a task.
constexpr double work_per_task = 1e6;
// Below this a product is over before another thread has woken up.
constexpr double work_for_threads = 2.5e5;

constexpr size_t whole_lines(size_t bytes) { return (bytes + 63) / 64 * 64; }

// The workspace: the second halves, then each thread's scratch.
template <class T>
size_t second_bytes(const Problem& p) {
  return p.halved ? whole_lines(static_cast<size_t>(p.m * p.n) * sizeof(T)) : 0;
}

template <class T>
size_t scratch_bytes(const Problem& p, bool accumulate, bool bias) {
  size_t most = 0;
  if (p.tiles() == 0) return most;
  // The four kinds of tile: whole, and cut at either edge or both; of each part of k.
  const int64_t across = p.by_rows ? p.tiles_n : p.tiles_m, last = p.tiles_n * p.tiles_m - 1;
  for (const int64_t tile : {int64_t{0}, across - 1, last - (across - 1), last}) {
    for (int64_t part = 0; part < p.parts(); ++part) {
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
  parallel_chunks(stream, p.m, divide_up(16384, p.n), [&](int64_t begin, int64_t end, int) {
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
void matmul(const View& a, const View& b, const View& out, const MatmulOptions& options, Workspace workspace,
            StreamHandle stream) {
  const Problem p = plan<T>(a, b, out);
  const int64_t tiles = p.tiles();
  if (tiles == 0) return;
  auto* const second = static_cast<std::byte*>(workspace.data);
  std::byte* const scratch = second + second_bytes<T>(p);
  const size_t scratch_each =
      (workspace.bytes - second_bytes<T>(p)) / static_cast<size_t>(threads_of(stream)) / 64 * 64;
  const T* bias = options.bias ? options.bias->as<T>() : nullptr;
  const double work = p.flops() / static_cast<double>(tiles);
  const int64_t per_task = work < work_per_task ? static_cast<int64_t>(work_per_task / (work + 1)) : 1;
  if (p.flops() < work_for_threads) stream = {};
  parallel_chunks(stream, tiles, per_task, [&](int64_t begin, int64_t end, int worker) {
    for (int64_t tile = begin; tile < end; ++tile) {
      Product product = tile_product(p, tile, sizeof(T), options.accumulate, second);
      const bool biased = bias && tile < tiles / p.parts();
      if (biased && !p.turned) product.bias = bias + place_of(p, tile).column * p.tile_n;
      gemm<T>(product, scratch + static_cast<size_t>(worker) * scratch_each);
      if (biased && p.turned) add_row_bias(product, bias + place_of(p, tile).row * p.tile_m);
    }
  });
  if (p.halved) add_second_halves<T>(p, second, stream);
}

size_t matmul_workspace(const View& a, const View& b, const View& out, int threads) {
  const auto bytes = [&]<class T>(T) {
    const Problem p = plan<T>(a, b, out);
    size_t most = 0;
    for (const auto& [accumulate, bias] : {std::pair{false, false}, {false, true}, {true, false}}) {
      const size_t scratch = scratch_bytes<T>(p, accumulate, bias);
      most = scratch > most ? scratch : most;
    }
    return second_bytes<T>(p) + most * static_cast<size_t>(threads);
  };
  switch (out.dtype) {
    case DType::f64: return bytes(double{});
    case DType::f16: return bytes(f16{});
    case DType::bf16: return bytes(bf16{});
    default: return bytes(float{});
  }
}

SG_FOR_FLOATS(matmul, const View&, const View&, const View&, const MatmulOptions&, Workspace, StreamHandle)

}  // namespace sg::kernels::SG_ISA

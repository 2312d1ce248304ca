// Attention backward by tiles, weights computed again from the scores and the saved lse. Three
// kernels, none of which adds to what another block has: delta = Σ d_out · out of each query; dq,
// a block for some queries; dk and dv, a block for a tile of keys, which goes through the queries
// of all heads that share them, in order.
#include "kernels/cuda/attention.h"
#include "kernels/entries.h"

namespace sg::kernels::cuda {
namespace heads {
namespace {

struct Backward {
  Geometry g;
  Heads q, k, v, out, d_out, dq, dk, dv;
  const void* lse;
  void* delta;  // (b,h,t), in the workspace
  int queries;
};

// Shared memory of a block.
template <class S>
struct Tiles {
  S *q, *d_out;           // (queries, padded)
  S *k, *v;               // (keys_of_tile, padded)
  S *weights, *gradient;  // (queries, keys_of_tile + 1): what multiplied v, and d of the scores
  S *first, *second;      // sums: dq (queries, padded); or dk and dv (keys_of_tile, padded)

  __device__ Tiles(S* memory, const Geometry& g, int queries) {
    q = memory;
    d_out = q + queries * g.padded;
    k = d_out + queries * g.padded;
    v = k + keys_of_tile * g.padded;
    weights = v + keys_of_tile * g.padded;
    gradient = weights + queries * (keys_of_tile + 1);
    first = gradient + queries * (keys_of_tile + 1);
    second = first + keys_of_tile * g.padded;
  }
};
// With sums of `sums` rows.
template <class S>
size_t tile_bytes(const Geometry& g, int queries, int sums) {
  const int64_t rows = (2 * queries + 2 * keys_of_tile + sums) * g.padded;
  return static_cast<size_t>(rows + 2 * queries * (keys_of_tile + 1)) * sizeof(S);
}

// A warp has a query.
template <class T>
__global__ void __launch_bounds__(threads) delta_kernel(Backward a) {
  using S = Statistic<T>;
  const Geometry& g = a.g;
  const int lane = threadIdx.x % warp_lanes;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * warps + threadIdx.x / warp_lanes;
  if (row >= g.b * g.h * g.t)
    return;
  const int64_t batch = row / (g.h * g.t);
  const int64_t head = row / g.t % g.h;
  const T* const out = a.out.row<const T>(batch, head, row % g.t);
  const T* const d_out = a.d_out.row<const T>(batch, head, row % g.t);
  S sum = 0;
  for (int64_t c = lane; c < g.d; c += warp_lanes)
    sum = std::fma(static_cast<S>(read(d_out + c)), static_cast<S>(read(out + c)), sum);
  sum = warp_combine(sum, Add<S>{});
  if (lane == 0)
    write(static_cast<S*>(a.delta) + row, sum);
}

// The weights of a tile and their gradient, from staged rows; a warp has rows, a lane is a key.
template <class S>
__device__ void tile_gradients(const Backward& a,
                               const Tiles<S>& x,
                               int64_t batch,
                               int64_t head,
                               int64_t first,
                               int64_t tile) {
  const Geometry& g = a.g;
  const int lane = threadIdx.x % warp_lanes;
  const int64_t j = tile + lane;
  const int64_t statistics = (batch * g.h + head) * g.t;
  const S scale = static_cast<S>(g.scale);
  for (int r = threadIdx.x / warp_lanes; r < a.queries; r += warps) {
    const int64_t i = first + r;
    S weight = 0;
    S gradient = 0;
    if (i < g.t) {
      const S lse = read(static_cast<const S*>(a.lse) + statistics + i);
      const S delta = read(static_cast<const S*>(a.delta) + statistics + i);
      const S score = dot(x.q + r * g.padded, x.k + lane * g.padded, g.d) * scale;
      const S value = dot(x.d_out + r * g.padded, x.v + lane * g.padded, g.d);
      const S factor = dropout_factor<S>(g, batch, head, i, j);
      const S softmax = weight_of(masked(g, batch, head, i, j, score), lse);
      weight = softmax * factor;
      gradient = softmax * scale * (value * factor - delta);
    }
    write(x.weights + r * (keys_of_tile + 1) + lane, weight);
    write(x.gradient + r * (keys_of_tile + 1) + lane, gradient);
  }
}

// sums (rows, d) += Σ over n of factors[row · row_step + n · step] · terms (n, d).
template <class S>
__device__ void add_products(const Geometry& g,
                             S* sums,
                             int rows,
                             const S* factors,
                             int row_step,
                             int step,
                             int count,
                             const S* terms) {
  const int lane = threadIdx.x % warp_lanes;
  for (int r = threadIdx.x / warp_lanes; r < rows; r += warps) {
    for (int64_t c = lane; c < g.d; c += warp_lanes) {
      S sum = read(sums + r * g.padded + c);
      for (int n = 0; n < count; ++n) {
        const S term = read(terms + n * g.padded + c);
        sum = std::fma(read(factors + r * row_step + n * step), term, sum);
      }
      write(sums + r * g.padded + c, sum);
    }
  }
}

template <class S>
__device__ void clear(S* sums, int64_t count) {
  for (int64_t n = threadIdx.x; n < count; n += threads)
    write(sums + n, S(0));
}

// Grid (blocks of queries, batch · heads).
template <class T>
__global__ void __launch_bounds__(threads) dq_kernel(Backward a) {
  using S = Statistic<T>;
  SG_DYN_SHARED(S, memory);
  const Geometry& g = a.g;
  const Tiles<S> x(memory, g, a.queries);
  const int64_t batch = blockIdx.y / g.h;
  const int64_t head = blockIdx.y % g.h;
  const int64_t key_head = head / (g.h / g.hk);
  const int64_t first = static_cast<int64_t>(blockIdx.x) * a.queries;
  stage_rows<T>(g, a.q, batch, head, first, g.t, a.queries, x.q);
  stage_rows<T>(g, a.d_out, batch, head, first, g.t, a.queries, x.d_out);
  clear(x.first, a.queries * g.padded);
  const int64_t last = first + a.queries < g.t ? first + a.queries - 1 : g.t - 1;
  const int64_t end = g.visible(last);
  const int64_t begin = g.hidden(first) / keys_of_tile * keys_of_tile;
  for (int64_t tile = begin; tile < end; tile += keys_of_tile) {
    __syncthreads();  // the keys of the tile before are no longer read
    stage_rows<T>(g, a.k, batch, key_head, tile, g.s, keys_of_tile, x.k);
    stage_rows<T>(g, a.v, batch, key_head, tile, g.s, keys_of_tile, x.v);
    __syncthreads();
    tile_gradients(a, x, batch, head, first, tile);
    __syncthreads();
    add_products(g, x.first, a.queries, x.gradient, keys_of_tile + 1, 1, keys_of_tile, x.k);
  }
  __syncthreads();
  write_rows<T>(g, a.dq, batch, head, first, g.t, a.queries, x.first);
}

// Grid (tiles of keys, batch · heads of keys).
template <class T>
__global__ void __launch_bounds__(threads) dk_dv_kernel(Backward a) {
  using S = Statistic<T>;
  SG_DYN_SHARED(S, memory);
  const Geometry& g = a.g;
  const Tiles<S> x(memory, g, a.queries);
  const int64_t batch = blockIdx.y / g.hk;
  const int64_t key_head = blockIdx.y % g.hk;
  const int64_t tile = static_cast<int64_t>(blockIdx.x) * keys_of_tile;
  const int64_t group = g.h / g.hk;
  stage_rows<T>(g, a.k, batch, key_head, tile, g.s, keys_of_tile, x.k);
  stage_rows<T>(g, a.v, batch, key_head, tile, g.s, keys_of_tile, x.v);
  clear(x.first, 2 * keys_of_tile * g.padded);
  const int64_t begin = g.first_viewer(tile) / a.queries * a.queries;
  const int64_t end = g.last_viewer(tile + keys_of_tile - 1);
  for (int64_t head = key_head * group; head < (key_head + 1) * group; ++head) {
    for (int64_t first = begin; first < end; first += a.queries) {
      __syncthreads();  // the queries before are no longer read
      stage_rows<T>(g, a.q, batch, head, first, g.t, a.queries, x.q);
      stage_rows<T>(g, a.d_out, batch, head, first, g.t, a.queries, x.d_out);
      __syncthreads();
      tile_gradients(a, x, batch, head, first, tile);
      __syncthreads();
      const int step = keys_of_tile + 1;
      add_products(g, x.first, keys_of_tile, x.gradient, 1, step, a.queries, x.q);
      add_products(g, x.second, keys_of_tile, x.weights, 1, step, a.queries, x.d_out);
    }
  }
  __syncthreads();
  write_rows<T>(g, a.dk, batch, key_head, tile, g.s, keys_of_tile, x.first);
  write_rows<T>(g, a.dv, batch, key_head, tile, g.s, keys_of_tile, x.second);
}

template <class T>
void run(Backward a, StreamHandle handle) {
  using S = Statistic<T>;
  const cudaStream_t stream = stream_of(handle);
  const Geometry& g = a.g;
  const char* const op = "attention_backward";
  const int64_t query_rows = g.b * g.h * g.t;
  if (query_rows > 0)
    launch(delta_kernel<T>,
           static_cast<unsigned>(divide_up(query_rows, warps)),
           threads,
           0,
           stream,
           a);
  if (query_rows * g.d > 0) {
    a.queries = queries_that_fit<S>(g, 3, 2, op);
    const dim3 grid(static_cast<unsigned>(divide_up(g.t, a.queries)),
                    static_cast<unsigned>(g.b * g.h));
    launch(dq_kernel<T>, grid, threads, tile_bytes<S>(g, a.queries, a.queries), stream, a);
  }
  if (g.b * g.hk * g.s * g.d > 0) {
    a.queries = queries_that_fit<S>(g, 2, 4, op);
    const dim3 grid(static_cast<unsigned>(divide_up(g.s, keys_of_tile)),
                    static_cast<unsigned>(g.b * g.hk));
    const size_t shared = tile_bytes<S>(g, a.queries, 2 * keys_of_tile);
    launch(dk_dv_kernel<T>, grid, threads, shared, stream, a);
  }
}

}  // namespace
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
  using heads::heads_of;
  const heads::Backward a{heads::geometry_of(q, k, options),
                          heads_of(q),
                          heads_of(k),
                          heads_of(v),
                          heads_of(out),
                          heads_of(d_out),
                          heads_of(dq),
                          heads_of(dk),
                          heads_of(dv),
                          lse.data,
                          workspace.data,
                          0};
  heads::run<T>(a, stream);
}

size_t attention_workspace(const View& q, const View&, bool backward, int) {
  const size_t item = q.dtype == DType::f64 ? sizeof(double) : sizeof(float);
  return backward ? static_cast<size_t>(q.shape[0] * q.shape[1] * q.shape[2]) * item : 0;
}

SG_FOR_FLOATS(attention_backward)

}  // namespace sg::kernels::cuda

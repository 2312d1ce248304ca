// Attention forward by tiles with a running softmax (Dao et al., "FlashAttention", 2022): no (t, s)
// matrix exists. A block has `queries` queries of one head, a warp its share of them.
#include "kernels/cuda/attention.h"
#include "kernels/entries.h"

namespace sg::kernels::cuda {
namespace heads {
namespace {

struct Forward {
  Geometry g;
  Heads q, k, v, out;
  void* lse;
  int queries;
};

// Shared memory of a block; out is not yet divided by the sum.
template <class S>
struct Tiles {
  S *q, *out;    // (queries, padded)
  S* rows;       // (keys_of_tile, padded): keys, then values
  S* weights;    // (queries, keys_of_tile)
  S *top, *sum;  // (queries)

  __device__ Tiles(S* memory, const Geometry& g, int queries) {
    q = memory;
    out = q + queries * g.padded;
    rows = out + queries * g.padded;
    weights = rows + keys_of_tile * g.padded;
    top = weights + queries * keys_of_tile;
    sum = top + queries;
  }
};
template <class S>
size_t tile_bytes(const Geometry& g, int queries) {
  const int64_t rows = (2 * queries + keys_of_tile) * g.padded;
  return static_cast<size_t>(rows + queries * (keys_of_tile + 2)) * sizeof(S);
}

// One warp: the weights of query i for a tile of keys, and what its running softmax becomes. `r` is
// the query's place in the block, a lane has key j.
template <class S>
__device__ void softmax_row(
    const Forward& a, const Tiles<S>& x, int64_t batch, int64_t head, int r, int64_t i, int64_t j) {
  const Geometry& g = a.g;
  const int lane = threadIdx.x % warp_lanes;
  const S score = dot(x.q + r * g.padded, x.rows + lane * g.padded, g.d) * static_cast<S>(g.scale);
  const S seen = masked(g, batch, head, i, j, score);
  const S before = read(x.top + r);
  const S top = Most<S>{}(before, warp_combine(seen, Most<S>{}));
  const S weight = weight_of(seen, top);
  const S sum = warp_combine(weight, Add<S>{});
  const S rescale = weight_of(before, top);
  write(x.weights + r * keys_of_tile + lane, weight * dropout_factor<S>(g, batch, head, i, j));
  for (int64_t c = lane; c < g.d; c += warp_lanes)
    write(x.out + r * g.padded + c, read(x.out + r * g.padded + c) * rescale);
  __syncwarp();
  if (lane == 0) {
    write(x.sum + r, std::fma(read(x.sum + r), rescale, sum));
    write(x.top + r, top);
  }
}

// out (queries, d) += weights (queries, keys) · values (keys, d); a warp's rows, lanes along d.
template <class S>
__device__ void add_values(const Geometry& g, const Tiles<S>& x, int queries) {
  const int lane = threadIdx.x % warp_lanes;
  for (int r = threadIdx.x / warp_lanes; r < queries; r += warps) {
    for (int64_t c = lane; c < g.d; c += warp_lanes) {
      S sum = read(x.out + r * g.padded + c);
      for (int key = 0; key < keys_of_tile; ++key) {
        const S value = read(x.rows + key * g.padded + c);
        sum = std::fma(read(x.weights + r * keys_of_tile + key), value, sum);
      }
      write(x.out + r * g.padded + c, sum);
    }
  }
}

// out divided by the sum, and the logsumexp.
template <class T, class S>
__device__ void finish(
    const Forward& a, const Tiles<S>& x, int64_t batch, int64_t head, int64_t first) {
  const Geometry& g = a.g;
  const int lane = threadIdx.x % warp_lanes;
  S* const lse = static_cast<S*>(a.lse) + (batch * g.h + head) * g.t;
  for (int r = threadIdx.x / warp_lanes; r < a.queries; r += warps) {
    const int64_t i = first + r;
    if (i >= g.t)
      return;
    const S sum = read(x.sum + r);
    const S inverse = sum == 0 ? S(0) : S(1) / sum;
    T* const to = a.out.row<T>(batch, head, i);
    for (int64_t c = lane; c < g.d; c += warp_lanes)
      write(to + c, static_cast<T>(read(x.out + r * g.padded + c) * inverse));
    if (lane == 0)
      write(lse + i, sum == 0 ? -static_cast<S>(INFINITY) : read(x.top + r) + std::log(sum));
  }
}

// Grid (blocks of queries, batch · heads).
template <class T>
__global__ void __launch_bounds__(threads) forward_kernel(Forward a) {
  using S = Statistic<T>;
  SG_DYN_SHARED(S, memory);
  const Geometry& g = a.g;
  const Tiles<S> x(memory, g, a.queries);
  const int64_t batch = blockIdx.y / g.h;
  const int64_t head = blockIdx.y % g.h;
  const int64_t key_head = head / (g.h / g.hk);
  const int64_t first = static_cast<int64_t>(blockIdx.x) * a.queries;
  stage_rows<T>(g, a.q, batch, head, first, g.t, a.queries, x.q);
  for (int n = threadIdx.x; n < a.queries * g.padded; n += threads)
    write(x.out + n, S(0));
  for (int r = threadIdx.x; r < a.queries; r += threads) {
    write(x.top + r, -static_cast<S>(INFINITY));
    write(x.sum + r, S(0));
  }
  const int64_t last = first + a.queries < g.t ? first + a.queries - 1 : g.t - 1;
  const int64_t end = g.visible(last);
  const int64_t begin = g.hidden(first) / keys_of_tile * keys_of_tile;
  for (int64_t tile = begin; tile < end; tile += keys_of_tile) {
    __syncthreads();  // the values of the tile before are no longer read
    stage_rows<T>(g, a.k, batch, key_head, tile, g.s, keys_of_tile, x.rows);
    __syncthreads();
    const int64_t j = tile + threadIdx.x % warp_lanes;
    for (int r = threadIdx.x / warp_lanes; r < a.queries; r += warps) {
      const int64_t i = first + r < g.t ? first + r : g.t - 1;
      softmax_row(a, x, batch, head, r, i, j);
    }
    __syncthreads();
    stage_rows<T>(g, a.v, batch, key_head, tile, g.s, keys_of_tile, x.rows);
    __syncthreads();
    add_values(g, x, a.queries);
  }
  __syncthreads();
  finish<T>(a, x, batch, head, first);
}

}  // namespace
}  // namespace heads

template <class T>
void attention(const View& q,
               const View& k,
               const View& v,
               const View& out,
               const View& lse,
               const AttentionOptions& options,
               Workspace,
               StreamHandle stream) {
  using S = Statistic<T>;
  heads::Forward a{heads::geometry_of(q, k, options),
                   heads::heads_of(q),
                   heads::heads_of(k),
                   heads::heads_of(v),
                   heads::heads_of(out),
                   lse.data,
                   0};
  if (q.numel() == 0)
    return;
  a.queries = heads::queries_that_fit<S>(a.g, 2, 1, "attention");
  const dim3 grid(static_cast<unsigned>(divide_up(a.g.t, a.queries)),
                  static_cast<unsigned>(a.g.b * a.g.h));
  const size_t shared = heads::tile_bytes<S>(a.g, a.queries);
  launch(heads::forward_kernel<T>, grid, heads::threads, shared, stream_of(stream), a);
}

SG_FOR_FLOATS(attention)

}  // namespace sg::kernels::cuda

// The ordered sum of arrays, in rank order as a tree of adjacent pairs, and scans for values that
// aren't finite. Positions are lowered by integer atomics, whose order changes nothing.
#include "kernels/cuda/access.h"
#include "kernels/cuda/launch.h"
#include "kernels/entries.h"

namespace sg::kernels::cuda {
namespace {

constexpr int threads = 256;
// As many arrays as a kernel's parameters hold.
constexpr int most_inputs = 256;
constexpr int most_outs = 64;

template <class T>
struct Inputs {
  const T* of[most_inputs];
  int count;
};
template <class Out>
struct Outs {
  Out* to[most_outs];
  int count;
};

__device__ int64_t first_index() {
  return static_cast<int64_t>(blockIdx.x) * threads + threadIdx.x;
}
__device__ int64_t grid_step() {
  return static_cast<int64_t>(gridDim.x) * threads;
}

template <class S>
__device__ bool finite(S x) {
  return x - x == 0;
}

// A position with who is to blame for it, which may be nobody: the least is the first position.
constexpr unsigned long long nowhere = ~0ull;
constexpr int culprit_bits = 16;

__global__ void clear_kernel(unsigned long long* first) {
  write(first, nowhere);
}
__global__ void unpack_kernel(unsigned long long* first, bool with_culprit) {
  const unsigned long long found = read(first);
  auto* const out = reinterpret_cast<int64_t*>(first);
  const bool any = found != nowhere;
  write(out, any ? static_cast<int64_t>(found >> culprit_bits) : int64_t{-1});
  if (with_culprit) {
    const auto culprit = static_cast<int64_t>(found & ((1u << culprit_bits) - 1));
    write(out + 1, any ? culprit - 1 : int64_t{-1});
  }
}
__device__ void lower(unsigned long long* first, int64_t at, int culprit) {
  const auto position = static_cast<unsigned long long>(at);
  atomicMin(first, position << culprit_bits | static_cast<unsigned>(culprit + 1));
}

// The first input that isn't finite at a position, or −1.
template <class T>
__device__ int culprit_at(const Inputs<T>& inputs, int64_t at) {
  for (int i = 0; i < inputs.count; ++i) {
    if (!finite(static_cast<Compute<T>>(read(inputs.of[i] + at))))
      return i;
  }
  return -1;
}

// N sums from element `at` on. The sum of ranks 0 … r is a binary counter, as in
// kernels/cpu/update.cpp.
template <int N, class T>
__device__ __forceinline__ void add_tree(const Inputs<T>& inputs,
                                         int64_t at,
                                         Compute<T> (&total)[N]) {
  constexpr int levels = 9;
  Compute<T> subtrees[levels][N];
  int trees = 0;
  for (int rank = 0; rank < inputs.count; ++rank) {
    Compute<T> x[N];
    load_as<N>(inputs.of[rank] + at, x);
    for (int bits = rank; bits & 1; bits >>= 1) {
      --trees;
      for (int j = 0; j < N; ++j)
        x[j] = subtrees[trees][j] + x[j];
    }
    for (int j = 0; j < N; ++j)
      subtrees[trees][j] = x[j];
    ++trees;
  }
  --trees;
  for (int j = 0; j < N; ++j)
    total[j] = subtrees[trees][j];
  while (trees > 0) {
    --trees;
    for (int j = 0; j < N; ++j)
      total[j] = subtrees[trees][j] + total[j];
  }
}

template <int N, class T, class Out>
__device__ __forceinline__ void tree_lot(const Inputs<T>& inputs,
                                         const Outs<Out>& outs,
                                         int64_t at,
                                         Compute<T> scale,
                                         unsigned long long* first) {
  Compute<T> total[N];
  add_tree<N>(inputs, at, total);
  Out rounded[N];
  for (int j = 0; j < N; ++j) {
    rounded[j] = static_cast<Out>(total[j] * scale);
    // Before the sum is stored: a place may be an input's.
    if (first && !finite(static_cast<Compute<Out>>(rounded[j])))
      lower(first, at + j, culprit_at(inputs, at + j));
  }
  for (int k = 0; k < outs.count; ++k)
    store<N>(outs.to[k] + at, rounded);
}

template <bool by_lots, class T, class Out>
__global__ void __launch_bounds__(threads) tree_sum_kernel(
    Inputs<T> inputs, Outs<Out> outs, int64_t count, Compute<T> scale, unsigned long long* first) {
  constexpr int N = 16 / static_cast<int>(sizeof(Out));
  const int64_t lots = by_lots ? count / N : 0;
  for (int64_t i = first_index(); i < lots; i += grid_step())
    tree_lot<N>(inputs, outs, i * N, scale, first);
  for (int64_t i = lots * N + first_index(); i < count; i += grid_step())
    tree_lot<1>(inputs, outs, i, scale, first);
}

template <class T>
__global__ void __launch_bounds__(threads)
    find_kernel(const T* x, int64_t count, int64_t lots, unsigned long long* first) {
  constexpr int N = wide<T>;
  for (int64_t i = first_index(); i < lots; i += grid_step()) {
    Compute<T> values[N];
    load_as<N>(x + i * N, values);
    for (int j = 0; j < N; ++j) {
      if (!finite(values[j]))
        lower(first, i * N + j, -1);
    }
  }
  for (int64_t i = lots * N + first_index(); i < count; i += grid_step()) {
    if (!finite(static_cast<Compute<T>>(read(x + i))))
      lower(first, i, -1);
  }
}

void check_count(int count, int most, const char* what) {
  if (count > most)
    throw std::runtime_error("tree_sum: at most " + std::to_string(most) + " " + what +
                             " on cuda, not " + std::to_string(count));
}

template <class T, class Out>
void run_tree_sum(const View* inputs,
                  int n,
                  const View* outs,
                  int n_outs,
                  float scale,
                  const View& first,
                  StreamHandle handle) {
  check_count(n, most_inputs, "arrays");
  check_count(n_outs, most_outs, "results");
  const cudaStream_t stream = stream_of(handle);
  Inputs<T> from{{}, n};
  Outs<Out> to{{}, n_outs};
  bool by_lots = true;
  for (int i = 0; i < n; ++i) {
    from.of[i] = inputs[i].as<T>();
    by_lots = by_lots && aligned(from.of[i]);
  }
  for (int i = 0; i < n_outs; ++i) {
    to.to[i] = outs[i].as<Out>();
    by_lots = by_lots && aligned(to.to[i]);
  }
  auto* const found = first.as<unsigned long long>();
  const int64_t count = outs[0].numel();
  const int64_t tasks = by_lots ? std::max<int64_t>(count * sizeof(Out) / 16, 1) : count;
  if (found)
    launch(clear_kernel, 1, 1, 0, stream, found);
  if (count > 0)
    launch(by_lots ? tree_sum_kernel<true, T, Out> : tree_sum_kernel<false, T, Out>,
           blocks_for(tasks, threads),
           threads,
           0,
           stream,
           from,
           to,
           count,
           static_cast<Compute<T>>(scale),
           found);
  if (found)
    launch(unpack_kernel, 1, 1, 0, stream, found, true);
}

}  // namespace

template <class T>
void tree_sum(const View* inputs,
              int n,
              const View* outs,
              int n_outs,
              float scale,
              const View& first,
              StreamHandle stream) {
  if (outs[0].dtype == dtype_of<T>)
    run_tree_sum<T, T>(inputs, n, outs, n_outs, scale, first, stream);
  else if constexpr (!std::is_same_v<T, double>)
    run_tree_sum<T, float>(inputs, n, outs, n_outs, scale, first, stream);
}

template <class T>
void find_nonfinite(const View& x, const View& first, StreamHandle handle) {
  const cudaStream_t stream = stream_of(handle);
  auto* const found = first.as<unsigned long long>();
  const int64_t count = x.numel();
  const int64_t lots = aligned(x.as<T>()) ? count / wide<T> : 0;
  launch(clear_kernel, 1, 1, 0, stream, found);
  if (count > 0)
    launch(find_kernel<T>,
           blocks_for(lots > 0 ? lots : count, threads),
           threads,
           0,
           stream,
           x.as<T>(),
           count,
           lots,
           found);
  launch(unpack_kernel, 1, 1, 0, stream, found, false);
}

SG_FOR_FLOATS(tree_sum)
SG_FOR_FLOATS(find_nonfinite)

}  // namespace sg::kernels::cuda

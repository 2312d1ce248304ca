// Pointwise ops: one kernel for every functor of kernels/pointwise.h. Where every operand is dense
// along the inner dimension, or the same all along it, a thread takes elements in lots of up to 16
// bytes; else one by one, in out's order.
#include <algorithm>
#include <type_traits>

#include "kernels/cuda/access.h"
#include "kernels/cuda/launch.h"
#include "kernels/entries.h"
#include "kernels/pointwise.h"
#include "kernels/walk.h"

namespace sg::kernels::cuda {
namespace {

constexpr int threads = 256;

template <PointwiseOp op, class T>
struct Arguments {
  using First = std::conditional_t<op == PointwiseOp::where, bool, T>;
  using Out = std::conditional_t<gives_boolean(op), bool, T>;
  Out* out;
  const First* a;
  const T* b;  // null where the op has no such input
  const T* c;
  Compute<T> scalar;
  int64_t lots;                  // per row of the walk, wholly; the rest is taken one by one
  int64_t rest;                  // elements per row behind them
  Walk<inputs_of(op) + 1> walk;  // operand 0 is out
};

// N elements of an operand: dense, or one for all of them.
template <int N, class T, class S>
__device__ __forceinline__ void load_operand(const T* from, bool dense, S (&to)[N]) {
  if (dense)
    return load_as<N>(from, to);
  const S one = static_cast<S>(read(from));
#pragma unroll
  for (int j = 0; j < N; ++j)
    to[j] = one;
}

template <int N, PointwiseOp op, class T>
__device__ __forceinline__ void evaluate(const Arguments<op, T>& args, const int64_t* at) {
  using S = Compute<T>;
  using Out = typename Arguments<op, T>::Out;
  constexpr int inputs = inputs_of(op);
  constexpr element::Functor<op> f;
  std::conditional_t<op == PointwiseOp::where, bool, S> a[N];
  S b[N];
  S c[N];
  load_operand<N>(args.a + at[1], N == 1 || args.walk.inner_stride(1) == 1, a);
  if constexpr (inputs > 1)
    load_operand<N>(args.b + at[2], N == 1 || args.walk.inner_stride(2) == 1, b);
  if constexpr (inputs > 2)
    load_operand<N>(args.c + at[3], N == 1 || args.walk.inner_stride(3) == 1, c);
  Out y[N];
#pragma unroll
  for (int j = 0; j < N; ++j) {
    if constexpr (inputs == 3)
      y[j] = static_cast<Out>(f(a[j], b[j], c[j]));
    else if constexpr (inputs == 2)
      y[j] = static_cast<Out>(f(a[j], b[j]));
    else if constexpr (has_scalar(op))
      y[j] = static_cast<Out>(f(a[j], args.scalar));
    else
      y[j] = static_cast<Out>(f(a[j]));
  }
  store<N>(args.out + at[0], y);
}

// Elements first + k · step, k < count, of each row; `width` of them a thread.
template <int N, PointwiseOp op, class T>
__device__ void evaluate_rows(const Arguments<op, T>& args, int64_t first, int64_t count) {
  constexpr int operands = inputs_of(op) + 1;
  const int64_t total = args.walk.rows() * count;
  const int64_t step = static_cast<int64_t>(gridDim.x) * threads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * threads + threadIdx.x; i < total; i += step) {
    int64_t at[operands];
    const int64_t row = args.walk.rank == 1 ? 0 : i / count;  // a division costs more than the rest
    args.walk.seek(row, at);
    for (int k = 0; k < operands; ++k)
      at[k] += (first + (i - row * count) * N) * args.walk.inner_stride(k);
    evaluate<N, op, T>(args, at);
  }
}

template <PointwiseOp op, class T>
__global__ void __launch_bounds__(threads) pointwise_kernel(Arguments<op, T> args) {
  constexpr int N = wide<T>;
  if (args.lots > 0)
    evaluate_rows<N, op, T>(args, 0, args.lots);
  if (args.rest > 0)
    evaluate_rows<1, op, T>(args, args.lots * N, args.rest);
}

// Every row of every operand can be taken in lots: dense ones begin at a multiple of 16 bytes.
template <PointwiseOp op, class T>
bool takes_lots(const Arguments<op, T>& args) {
  constexpr int N = wide<T>;
  const void* pointers[] = {args.out, args.a, args.b, args.c};
  for (int k = 0; k <= inputs_of(op); ++k) {
    const int64_t stride = args.walk.inner_stride(k);
    if (stride == 0 && k > 0)
      continue;
    if (stride != 1 || !aligned(pointers[k]))
      return false;
    for (int d = 0; d + 1 < args.walk.rank; ++d) {
      if (args.walk.strides[k][d] % N != 0)
        return false;
    }
  }
  return true;
}

template <PointwiseOp op, class T>
void run(const View* in, const View& out, double scalar, StreamHandle stream) {
  if constexpr (supports(op, dtype_of<T>)) {
    using Args = Arguments<op, T>;
    constexpr int inputs = inputs_of(op);
    const View* operands[inputs + 1] = {&out};
    for (int k = 0; k < inputs; ++k)
      operands[k + 1] = &in[k];
    Args args{out.as<typename Args::Out>(),
              in[0].as<typename Args::First>(),
              inputs > 1 ? in[1].as<T>() : nullptr,
              inputs > 2 ? in[2].as<T>() : nullptr,
              static_cast<Compute<T>>(scalar),
              0,
              0,
              walk_of(operands)};
    if (out.numel() == 0)
      return;
    args.lots = takes_lots(args) ? args.walk.inner() / wide<T> : 0;
    args.rest = args.walk.inner() - args.lots * wide<T>;
    const int64_t tasks = args.walk.rows() * std::max(args.lots, args.rest);
    launch(
        pointwise_kernel<op, T>, blocks_for(tasks, threads), threads, 0, stream_of(stream), args);
  }
}

}  // namespace

template <class T>
void pointwise(
    PointwiseOp op, const View* in, const View& out, double scalar, StreamHandle stream) {
  if (op == PointwiseOp::pow_scalar && scalar == 2) {
    const View twice[2] = {in[0], in[0]};
    return pointwise<T>(PointwiseOp::mul, twice, out, 0, stream);
  }
  switch (op) {
#define SG_CASE(name, inputs) \
  case PointwiseOp::name: return run<PointwiseOp::name, T>(in, out, scalar, stream);
    SG_POINTWISE_OPS(SG_CASE)
#undef SG_CASE
  }
}

SG_FOR_FLOATS(pointwise)
template decltype(pointwise<int32_t>) pointwise<int32_t>;
template decltype(pointwise<int64_t>) pointwise<int64_t>;
template decltype(pointwise<uint8_t>) pointwise<uint8_t>;
template decltype(pointwise<bool>) pointwise<bool>;

}  // namespace sg::kernels::cuda

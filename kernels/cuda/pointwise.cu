// Pointwise ops: one kernel for every functor of kernels/pointwise.h.
#include <type_traits>

#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.h"
#include "kernels/pointwise.h"
#include "kernels/walk.h"

namespace sg::kernels::cuda {
namespace {

constexpr int threads = 256;

// 16-bit floats are computed in f32.
template <class T>
using Compute = std::conditional_t<std::is_same_v<T, f16> || std::is_same_v<T, bf16>, float, T>;

template <PointwiseOp op, class T>
struct Arguments {
  using First = std::conditional_t<op == PointwiseOp::where, bool, T>;
  using Out = std::conditional_t<gives_boolean(op), bool, T>;
  Out* out;
  const First* a;
  const T* b;  // null where the op has no such input
  const T* c;
  Compute<T> scalar;
  int64_t count;
  Walk<inputs_of(op) + 1> walk;  // operand 0 is out
};

template <PointwiseOp op, class T>
__device__ auto evaluate(const Arguments<op, T>& args, const int64_t* at) {
  using S = Compute<T>;
  constexpr element::Functor<op> f;
  if constexpr (op == PointwiseOp::where)
    return f(args.a[at[1]], S(args.b[at[2]]), S(args.c[at[3]]));
  else if constexpr (inputs_of(op) == 3)
    return f(S(args.a[at[1]]), S(args.b[at[2]]), S(args.c[at[3]]));
  else if constexpr (inputs_of(op) == 2)
    return f(S(args.a[at[1]]), S(args.b[at[2]]));
  else if constexpr (has_scalar(op))
    return f(S(args.a[at[1]]), args.scalar);
  else
    return f(S(args.a[at[1]]));
}

template <PointwiseOp op, class T>
__global__ void __launch_bounds__(threads) pointwise_kernel(Arguments<op, T> args) {
  constexpr int operands = inputs_of(op) + 1;
  const int64_t step = static_cast<int64_t>(gridDim.x) * threads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * threads + threadIdx.x; i < args.count;
       i += step) {
    int64_t at[operands];
    const int64_t row =
        args.walk.rank == 1 ? 0 : i / args.walk.inner();  // a division costs more than the rest
    args.walk.seek(row, at);
    for (int k = 0; k < operands; ++k)
      at[k] += (i - row * args.walk.inner()) * args.walk.inner_stride(k);
    args.out[at[0]] = typename Arguments<op, T>::Out(evaluate(args, at));
  }
}

template <PointwiseOp op, class T>
void run(const View* in, const View& out, double scalar, StreamHandle stream) {
  if constexpr (supports(op, dtype_of<T>)) {
    using Args = Arguments<op, T>;
    constexpr int inputs = inputs_of(op);
    const View* operands[inputs + 1] = {&out};
    for (int k = 0; k < inputs; ++k)
      operands[k + 1] = &in[k];
    const Args args{out.as<typename Args::Out>(),
                    in[0].as<typename Args::First>(),
                    inputs > 1 ? in[1].as<T>() : nullptr,
                    inputs > 2 ? in[2].as<T>() : nullptr,
                    static_cast<Compute<T>>(scalar),
                    out.numel(),
                    walk_of(operands)};
    if (args.count == 0)
      return;
    launch(pointwise_kernel<op, T>,
           blocks_for(args.count, threads),
           threads,
           0,
           stream_of(stream),
           args);
  }
}

}  // namespace

template <class T>
void pointwise(
    PointwiseOp op, const View* in, const View& out, double scalar, StreamHandle stream) {
  switch (op) {
#define SG_CASE(name, inputs) \
  case PointwiseOp::name: return run<PointwiseOp::name, T>(in, out, scalar, stream);
    SG_POINTWISE_OPS(SG_CASE)
#undef SG_CASE
  }
}

template decltype(pointwise<float>) pointwise<float>;
template decltype(pointwise<double>) pointwise<double>;
template decltype(pointwise<f16>) pointwise<f16>;
template decltype(pointwise<bf16>) pointwise<bf16>;
template decltype(pointwise<int32_t>) pointwise<int32_t>;
template decltype(pointwise<int64_t>) pointwise<int64_t>;
template decltype(pointwise<uint8_t>) pointwise<uint8_t>;
template decltype(pointwise<bool>) pointwise<bool>;

}  // namespace sg::kernels::cuda

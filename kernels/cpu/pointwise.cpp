// Pointwise ops: one driver for every functor of kernels/pointwise.h.
#include "kernels/pointwise.h"

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/strided.h"
#include "kernels/cpu/vec.h"

namespace sg::kernels::SG_ISA {
namespace {

struct Dense {  // every operand's inner stride is 1, known to the compiler
  SG_INLINE constexpr int64_t operator[](int) const { return 1; }
};
struct Strides {
  int64_t of[4];
  SG_INLINE int64_t operator[](int k) const { return of[k]; }
};

// Lanes i, i + 1, … of a row of any stride.
template <class V, class T, class P>
SG_INLINE auto fetch(const T* row, int64_t stride, int64_t i, P part) {
  if constexpr (lanes_in<V> == 1) {
    return row[i * stride];
  } else {
    constexpr bool condition = std::is_same_v<T, bool>;
    T gathered[Vec::lanes];
    const T* lanes = row + i;
    if (stride != 1) {
      for (int j = 0; j < lanes_of(part); ++j) gathered[j] = row[(i + j) * stride];
      lanes = gathered;
    }
    if constexpr (condition) return load_mask(lanes, part);
    else return stride == 0 ? Vec(static_cast<float>(*row)) : load(lanes, part);
  }
}
template <class T, class X, class P>
SG_INLINE void put(T* row, int64_t stride, int64_t i, X x, P part) {
  if constexpr (std::is_arithmetic_v<X>) {
    row[i * stride] = x;
  } else {
    if (stride == 1) return store(row + i, x, part);
    T scattered[Vec::lanes];
    store(scattered, x, part);
    for (int j = 0; j < lanes_of(part); ++j) row[(i + j) * stride] = scattered[j];
  }
}

template <PointwiseOp op, class T>
struct Kernel {
  using V = Lanes<T>;
  using First = std::conditional_t<op == PointwiseOp::where, bool, T>;
  using Out = std::conditional_t<gives_boolean(op), bool, T>;
  static constexpr int inputs = inputs_of(op);

  const View* in;
  const View& out;
  V scalar;

  template <class S>
  SG_INLINE void row(const int64_t* offsets, int64_t n, S strides) const {
    constexpr element::Functor<op> f;
    Out* y = out.as<Out>() + offsets[0];
    const First* a = in[0].as<First>() + offsets[1];
    const T* b = inputs > 1 ? in[1].as<T>() + offsets[2] : nullptr;
    const T* c = inputs > 2 ? in[2].as<T>() + offsets[3] : nullptr;
    for_lanes<V>(n, [&](int64_t i, auto part) {
      const auto x = fetch<V>(a, strides[1], i, part);
      if constexpr (has_scalar(op)) {
        put(y, strides[0], i, f(x, scalar), part);
      } else if constexpr (inputs == 1) {
        put(y, strides[0], i, f(x), part);
      } else if constexpr (inputs == 2) {
        put(y, strides[0], i, f(x, fetch<V>(b, strides[2], i, part)), part);
      } else {
        put(y, strides[0], i, f(x, fetch<V>(b, strides[2], i, part), fetch<V>(c, strides[3], i, part)), part);
      }
    });
  }

  void run(StreamHandle stream) const {
    const View* operands[inputs + 1] = {&out};
    for (int k = 0; k < inputs; ++k) operands[k + 1] = &in[k];
    const auto walk = walk_of(operands);
    Strides strides = {};
    bool dense = true;
    for (int k = 0; k <= inputs; ++k) {
      strides.of[k] = walk.inner_stride(k);
      dense &= strides.of[k] == 1;
    }
    for_rows(stream, walk, [&](const int64_t* offsets, int64_t n) {
      if (dense) row(offsets, n, Dense{});
      else row(offsets, n, strides);
    });
  }
};

template <PointwiseOp op, class T>
void run(const View* in, const View& out, double scalar, StreamHandle stream) {
  if constexpr (supports(op, dtype_of<T>)) {
    using V = Lanes<T>;
    using Scalar = std::conditional_t<std::is_same_v<V, Vec>, float, T>;
    Kernel<op, T>{in, out, V(static_cast<Scalar>(scalar))}.run(stream);
  }
}

}  // namespace

template <class T>
void pointwise(PointwiseOp op, const View* in, const View& out, double scalar, StreamHandle stream) {
  if (op == PointwiseOp::pow_scalar && scalar == 2) {
    const View twice[2] = {in[0], in[0]};
    return run<PointwiseOp::mul, T>(twice, out, 0, stream);
  }
  switch (op) {
#define SG_CASE(name, inputs) \
  case PointwiseOp::name: return run<PointwiseOp::name, T>(in, out, scalar, stream);
    SG_POINTWISE_OPS(SG_CASE)
#undef SG_CASE
  }
}

SG_FOR_FLOATS(pointwise, PointwiseOp, const View*, const View&, double, StreamHandle)
template void pointwise<int32_t>(PointwiseOp, const View*, const View&, double, StreamHandle);
template void pointwise<int64_t>(PointwiseOp, const View*, const View&, double, StreamHandle);
template void pointwise<uint8_t>(PointwiseOp, const View*, const View&, double, StreamHandle);
template void pointwise<bool>(PointwiseOp, const View*, const View&, double, StreamHandle);

}  // namespace sg::kernels::SG_ISA

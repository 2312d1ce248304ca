// Pointwise ops. Each functor of kernels/pointwise.h becomes one loop over dense rows; one driver,
// shared by all ops and dtypes, walks any strides and packs what isn't dense into blocks.
#include "kernels/pointwise.h"

#include "kernels/cpu/strided.h"
#include "kernels/cpu/vec.h"
#include "kernels/entries.h"

namespace sg::kernels::SG_ISA {
namespace {

// out[i] = f(in[0][i], …) for n elements, all dense.
using RowFunction = void (*)(void* out, const void* const* in, int64_t n, double scalar);

template <PointwiseOp op, class T>
void dense_row(void* out, const void* const* in, int64_t n, double scalar_in) {
  using V = Lanes<T>;
  using Scalar = std::conditional_t<std::is_same_v<V, Vec>, float, T>;
  using Out = std::conditional_t<gives_boolean(op), bool, T>;
  constexpr element::Functor<op> f;
  Out* const y = static_cast<Out*>(out);
  const auto input = [&](int k, int64_t i, auto part) {
    return load(static_cast<const T*>(in[k]) + i, part);
  };
  for_lanes<V>(n, [&](int64_t i, auto part) {
    if constexpr (op == PointwiseOp::where) {
      const auto condition = load_mask<V>(static_cast<const bool*>(in[0]) + i, part);
      store(y + i, f(condition, input(1, i, part), input(2, i, part)), part);
    } else if constexpr (has_scalar(op)) {
      store(y + i, f(input(0, i, part), V(static_cast<Scalar>(scalar_in))), part);
    } else if constexpr (inputs_of(op) == 1) {
      store(y + i, f(input(0, i, part)), part);
    } else if constexpr (inputs_of(op) == 2) {
      store(y + i, f(input(0, i, part), input(1, i, part)), part);
    } else {
      store(y + i, f(input(0, i, part), input(1, i, part), input(2, i, part)), part);
    }
  });
}

template <PointwiseOp op, class T>
constexpr RowFunction row_function() {
  if constexpr (supports(op, dtype_of<T>))
    return dense_row<op, T>;
  else
    return nullptr;
}

// Operands 0 (out) and 1 … inputs along a row; those that aren't dense pass through blocks on the
// stack.
template <int inputs>
struct Row {
  static constexpr int64_t block = 512;
  RowFunction f;
  double scalar;
  char* data[inputs + 1];
  size_t size[inputs + 1];
  int64_t stride[inputs + 1];
  bool dense = true;

  void run(const int64_t* offsets, int64_t n) const {
    alignas(64) char packed[inputs + 1][block * sizeof(double)];
    const int64_t step = dense ? n : block;
    for (int64_t begin = 0; begin < n; begin += step) {
      const int64_t count = n - begin < step ? n - begin : step;
      const auto at = [&](int k) {
        return data[k] + (offsets[k] + begin * stride[k]) * static_cast<int64_t>(size[k]);
      };
      const void* in[inputs];
      for (int k = 1; k <= inputs; ++k) {
        in[k - 1] = stride[k] == 1 ? at(k) : packed[k];
        const bool refill = stride[k] != 1 && (stride[k] != 0 || begin == 0);
        if (refill)
          copy_elements(size[k], at(k), stride[k], packed[k], 1, count);
      }
      f(stride[0] == 1 ? at(0) : packed[0], in, count, scalar);
      if (stride[0] != 1)
        copy_elements(size[0], packed[0], 1, at(0), stride[0], count);
    }
  }
};

template <int inputs>
void run(RowFunction f, const View* in, const View& out, double scalar, StreamHandle stream) {
  const View* operands[inputs + 1] = {&out};
  for (int k = 0; k < inputs; ++k)
    operands[k + 1] = &in[k];
  const Walk<inputs + 1> walk = walk_of(operands);
  Row<inputs> row{.f = f, .scalar = scalar, .data = {}, .size = {}, .stride = {}};
  for (int k = 0; k <= inputs; ++k) {
    row.data[k] = static_cast<char*>(operands[k]->data);
    row.size[k] = size_of(operands[k]->dtype);
    row.stride[k] = walk.inner() == 1 ? 1 : walk.inner_stride(k);
    row.dense &= row.stride[k] == 1;
  }
  for_rows(stream, walk, [&](const int64_t* offsets, int64_t n) { row.run(offsets, n); });
}

}  // namespace

template <class T>
void pointwise(
    PointwiseOp op, const View* in, const View& out, double scalar, StreamHandle stream) {
  constexpr RowFunction functions[] = {
#define SG_ROW_FUNCTION(name, inputs) row_function<PointwiseOp::name, T>(),
      SG_POINTWISE_OPS(SG_ROW_FUNCTION)
#undef SG_ROW_FUNCTION
  };
  if (op == PointwiseOp::pow_scalar && scalar == 2) {
    const View twice[2] = {in[0], in[0]};
    return pointwise<T>(PointwiseOp::mul, twice, out, 0, stream);
  }
  const RowFunction f = functions[static_cast<int>(op)];
  switch (inputs_of(op)) {
    case 1: return run<1>(f, in, out, scalar, stream);
    case 2: return run<2>(f, in, out, scalar, stream);
    default: return run<3>(f, in, out, scalar, stream);
  }
}

SG_FOR_FLOATS(pointwise)
template void pointwise<int32_t>(PointwiseOp, const View*, const View&, double, StreamHandle);
template void pointwise<int64_t>(PointwiseOp, const View*, const View&, double, StreamHandle);
template void pointwise<uint8_t>(PointwiseOp, const View*, const View&, double, StreamHandle);
template void pointwise<bool>(PointwiseOp, const View*, const View&, double, StreamHandle);

}  // namespace sg::kernels::SG_ISA

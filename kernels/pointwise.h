// Pointwise ops: one list, one functor each, for host and device.
//
// A functor is a template over V: a CPU vector of f32, or a plain float or double. It calls exp, log, tanh, erf, sqrt,
// fma, max, min, select unqualified; each backend supplies them for its V.
#pragma once
#include <cstdint>

#include "kernels/dtype.h"

namespace sg {

// X(name, inputs): the single list that the enum, the names and both backends' dispatch are made from.
#define SG_POINTWISE_OPS(X)                                                                                         \
  X(add, 2)                                                                                                         \
  X(sub, 2) X(mul, 2) X(div, 2) X(maximum, 2) X(minimum, 2) X(add_scalar, 1) X(mul_scalar, 1) X(pow_scalar, 1)      \
      X(neg, 1) X(abs, 1) X(exp, 1) X(log, 1) X(sqrt, 1) X(rsqrt, 1) X(tanh, 1) X(sigmoid, 1) X(relu, 1) X(gelu, 1) \
          X(gelu_tanh, 1) X(silu, 1) X(relu_backward, 2) X(gelu_backward, 2) X(gelu_tanh_backward, 2)               \
              X(silu_backward, 2) X(tanh_backward, 2) X(sigmoid_backward, 2) X(mul_add, 3) X(less, 2) X(equal, 2)   \
                  X(where, 3)

enum class PointwiseOp : uint8_t {
#define SG_ENUMERATOR(name, inputs) name,
  SG_POINTWISE_OPS(SG_ENUMERATOR)
#undef SG_ENUMERATOR
};

constexpr const char* name_of(PointwiseOp op) {
#define SG_NAME(name, inputs) #name,
  constexpr const char* names[] = {SG_POINTWISE_OPS(SG_NAME)};
#undef SG_NAME
  return names[static_cast<int>(op)];
}
constexpr int inputs_of(PointwiseOp op) {
#define SG_INPUTS(name, inputs) inputs,
  constexpr int counts[] = {SG_POINTWISE_OPS(SG_INPUTS)};
#undef SG_INPUTS
  return counts[static_cast<int>(op)];
}

}  // namespace sg

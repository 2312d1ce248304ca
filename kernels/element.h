// Scalar math that element functors (pointwise.h, update.h) are written in. A functor calls these
// names unqualified: for float and double it finds them here, for a CPU vector beside the vector
// (kernels/cpu/vec.h), on host and device alike.
#pragma once
#include <cmath>
#include <concepts>

#include "kernels/dtype.h"

namespace sg::element {

#define SG_SCALAR_FUNCTION(name)    \
  SG_INLINE float name(float x) {   \
    return std::name(x);            \
  }                                 \
  SG_INLINE double name(double x) { \
    return std::name(x);            \
  }
SG_SCALAR_FUNCTION(exp)
SG_SCALAR_FUNCTION(log)
SG_SCALAR_FUNCTION(tanh)
SG_SCALAR_FUNCTION(erf)
SG_SCALAR_FUNCTION(sqrt)
#undef SG_SCALAR_FUNCTION

template <std::floating_point T>
SG_INLINE T fma(T a, T b, T c) {
  return std::fma(a, b, c);
}
template <std::integral T>
SG_INLINE T fma(T a, T b, T c) {
  return static_cast<T>(a * b + c);
}

template <std::floating_point T>
SG_INLINE T pow(T x, T exponent) {
  return std::pow(x, exponent);
}

// The second operand where either is NaN, as the x86 instructions do.
template <class T>
requires std::is_arithmetic_v<T> SG_INLINE T max(T a, T b) {
  return a > b ? a : b;
}
template <class T>
requires std::is_arithmetic_v<T> SG_INLINE T min(T a, T b) {
  return a < b ? a : b;
}
template <std::floating_point T>
SG_INLINE T abs(T x) {
  return std::fabs(x);
}
template <std::signed_integral T>
SG_INLINE T abs(T x) {
  return x < 0 ? -x : x;
}
template <std::unsigned_integral T>
SG_INLINE T abs(T x) {
  return x;
}
template <class T>
requires std::is_arithmetic_v<T> SG_INLINE T select(bool condition, T yes, T no) {
  return condition ? yes : no;
}

}  // namespace sg::element

// Scalar math that element functors (pointwise.h, update.h) are written in. A functor calls these
// names unqualified: for float and double it finds them here, for a CPU vector beside the vector
// (kernels/cpu/vec.h), on host and device alike.
#pragma once
#include <bit>
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

// One element converted as a C++ cast does it, 16-bit floats by way of f32, to bool by comparison
// with zero.
template <class To, class From>
SG_INLINE To convert(From x) {
  constexpr bool half_in = std::is_same_v<From, f16> || std::is_same_v<From, bf16>;
  constexpr bool half_out = std::is_same_v<To, f16> || std::is_same_v<To, bf16>;
  if constexpr (std::is_same_v<To, From>)
    return x;
  else if constexpr (half_in)
    return convert<To>(static_cast<float>(x));
  else if constexpr (std::is_same_v<To, bool>)
    return x != From(0);
  else if constexpr (half_out)
    return To(static_cast<float>(x));
  else
    return static_cast<To>(x);
}

// To the nearest whole number, ties to the even one.
SG_INLINE float round(float x) {
  return std::rint(x);
}
// x = m · 2^e with m in [1, 2) for positive finite x.
SG_INLINE float split2(float x, float& e) {
  const bool subnormal = x < 1.17549435e-38f;
  const uint32_t bits = std::bit_cast<uint32_t>(subnormal ? x * 16777216.0f : x);
  e = static_cast<float>(static_cast<int>(bits >> 23) - 127) - (subnormal ? 24.0f : 0.0f);
  return std::bit_cast<float>((bits & 0x7fffffu) | 0x3f800000u);
}

// ---- what has the same bits in a vector of the CPU and in a thread of a GPU

// x = m · 2^e with m in [√½, √2): log x = e·ln2 + log(1 + (m − 1)). Within 2 ulp.
template <class V>
SG_INLINE V written_log(V x) {
  V e;
  V m = split2(x, e);
  const auto large = m > V(1.41421356f);
  m = select(large, m * V(0.5f), m);
  e = select(large, e + V(1.0f), e);
  const V f = m - V(1.0f);
  const V f2 = f * f;
  V p = V(7.0376836292e-2f);
  p = fma(p, f, V(-1.1514610310e-1f));
  p = fma(p, f, V(1.1676998740e-1f));
  p = fma(p, f, V(-1.2420140846e-1f));
  p = fma(p, f, V(1.4249322787e-1f));
  p = fma(p, f, V(-1.6668057665e-1f));
  p = fma(p, f, V(2.0000714765e-1f));
  p = fma(p, f, V(-2.4999993993e-1f));
  p = fma(p, f, V(3.3333331174e-1f));
  V low = fma(e, V(-2.12194440e-4f), p * (f2 * f));
  low = fma(f2, V(-0.5f), low);
  const V y = fma(e, V(0.693359375f), f + low);
  const V infinity(__builtin_inff());
  const V nan(__builtin_nanf(""));
  const V edge = select(x == V(0.0f), -infinity, select(x == infinity, infinity, nan));
  return select((x > V(0.0f)) & (x < infinity), y, edge);
}

// cos and sin of 2π·u for u in [0, 1): 4u = quadrant + f with |f| ≤ ½, polynomials on |angle| ≤
// π/4.
template <class V>
SG_INLINE void written_turn(V u, V& cosine, V& sine) {
  const V quadrant = round(u * V(4.0f));
  const V angle = fma(u, V(4.0f), -quadrant) * V(1.57079633f);
  const V z = angle * angle;
  V s = fma(V(-1.9515295891e-4f), z, V(8.3321608736e-3f));
  s = fma(s, z, V(-1.6666654611e-1f));
  s = fma(s * z, angle, angle);
  V c = fma(V(2.443315711809948e-5f), z, V(-1.388731625493765e-3f));
  c = fma(c, z, V(4.166664568298827e-2f));
  c = fma(c, z * z, fma(V(-0.5f), z, V(1.0f)));
  const auto first = quadrant == V(1.0f);
  const auto second = quadrant == V(2.0f);
  const auto third = quadrant == V(3.0f);
  cosine = select(first, -s, select(second, -c, select(third, s, c)));
  sine = select(first, c, select(second, -s, select(third, -c, s)));
}

// Two normal numbers from two uniform ones in [0, 1) (Box and Muller, 1958).
template <class V>
SG_INLINE void normal_pair(V first, V second, V& x, V& y) {
  const V radius = sqrt(V(-2.0f) * written_log(V(1.0f) - first));
  V cosine;
  V sine;
  written_turn(second, cosine, sine);
  x = radius * cosine;
  y = radius * sine;
}

}  // namespace sg::element

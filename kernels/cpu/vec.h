// The vectors that CPU kernels are written in, once for every instruction set and dtype.
//
// Vec holds f32 lanes (16 in AVX-512, 8 in AVX2); f16 and bf16 are widened by load and rounded to
// nearest even by store. A kernel is a template over the stored type T and computes in Lanes<T>:
// Vec for f32, f16 and bf16, the type itself for all others, which are lanes of one. for_lanes runs
// a body over full vectors and one masked rest, so that an element gets the same bits wherever it
// lies. exp, log, tanh and erf are within 2 ulp.
#pragma once
#include <immintrin.h>

#include <cstdint>
#include <type_traits>

#include "kernels/dtype.h"
#include "kernels/element.h"

namespace sg::kernels::SG_ISA {

struct Full {};  // every lane

#if defined(SG_ISA_avx512)
#include "kernels/cpu/vec_avx512.h"
#else
#include "kernels/cpu/vec_avx2.h"
#endif

using element::abs;
using element::erf;
using element::exp;
using element::fma;
using element::log;
using element::max;
using element::min;
using element::pow;
using element::select;
using element::sqrt;
using element::tanh;

template <class T>
using Lanes = std::conditional_t<std::is_same_v<T, float> || std::is_same_v<T, f16> ||
                                     std::is_same_v<T, bf16>,
                                 Vec,
                                 T>;
// What sums and statistics of T are kept in.
template <class T>
using Statistic = std::conditional_t<std::is_same_v<T, double>, double, float>;

template <class V>
inline constexpr int lanes_in = 1;
template <>
inline constexpr int lanes_in<Vec> = Vec::lanes;

// Types of one lane: every access is Full.
template <class T>
requires std::is_arithmetic_v<T> SG_INLINE T load(const T* p, Full) {
  return *p;
}
template <class T>
requires std::is_arithmetic_v<T> SG_INLINE void store(T* p, T x, Full) {
  *p = x;
}
SG_INLINE double horizontal_sum(double x) {
  return x;
}
SG_INLINE double horizontal_max(double x) {
  return x;
}

// body(i, part) for i = 0, lanes, 2·lanes … of [0, n); part is Full, and Part for the rest.
template <class V, class F>
SG_INLINE void for_lanes(int64_t n, F&& body) {
  constexpr int lanes = lanes_in<V>;
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes)
    body(i, Full{});
  if constexpr (lanes > 1) {
    if (i < n)
      body(i, Part(n - i));
  }
}
SG_INLINE int lanes_of(Full) {
  return Vec::lanes;
}
SG_INLINE int lanes_of(Part part) {
  return part.n;
}
// Booleans beside lanes of V.
template <class V, class P>
SG_INLINE auto load_mask(const bool* p, P part) {
  if constexpr (lanes_in<V> == 1)
    return *p;
  else
    return load_mask(p, part);
}
// x where the part has lanes, else other: for maxima, or to keep zeros out of a sum of transformed
// values.
template <class V>
SG_INLINE V within(V x, V, Full) {
  return x;
}
SG_INLINE Vec within(Vec x, Vec other, Part part) {
  return select(mask_of(part), x, other);
}

}  // namespace sg::kernels::SG_ISA

#include "kernels/cpu/vec_math.h"

// Values whose exponent has all bits set: infinities and NaNs.
#pragma once
#include <bit>
#include <cstdint>
#include <type_traits>

#include "kernels/dtype.h"

namespace sg::kernels::SG_ISA {

template <class T>
inline constexpr auto exponent_bits = [] {
  if constexpr (std::is_same_v<T, double>)
    return uint64_t{0x7ff0000000000000};
  else if constexpr (std::is_same_v<T, float>)
    return uint32_t{0x7f800000};
  else if constexpr (std::is_same_v<T, f16>)
    return uint16_t{0x7c00};
  else
    return uint16_t{0x7f80};
}();

// Position of the first of n values that isn't finite, or −1. All are looked at together first,
// which the compiler turns into vectors.
template <class T>
int64_t first_nonfinite(const T* x, int64_t n) {
  using Word = std::remove_const_t<decltype(exponent_bits<T>)>;
  static_assert(sizeof(Word) == sizeof(T));
  constexpr Word exponent = exponent_bits<T>;
  const auto is = [&](int64_t i) {
    return static_cast<Word>((std::bit_cast<Word>(x[i]) & exponent) == exponent);
  };
  Word any = 0;
  for (int64_t i = 0; i < n; ++i)
    any |= is(i);
  for (int64_t i = 0; any && i < n; ++i) {
    if (is(i))
      return i;
  }
  return -1;
}

}  // namespace sg::kernels::SG_ISA

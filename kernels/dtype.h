// Element types of tensors and the two 16-bit float formats as plain C++ types.
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#if defined(__CUDACC__)
#define SG_HOST_DEVICE __host__ __device__
#else
#define SG_HOST_DEVICE
#endif

// For functions in headers that ISA sources include: inlined always, since the linker would
// otherwise be free to give every caller the copy that was compiled for AVX-512.
#define SG_INLINE SG_HOST_DEVICE inline __attribute__((always_inline))

namespace sg {

// boolean is one byte, 0 or 1.
enum class DType : uint8_t { f32, f64, f16, bf16, i32, i64, u8, boolean };
inline constexpr int dtype_count = 8;

constexpr size_t size_of(DType t) {
  constexpr size_t sizes[dtype_count] = {4, 8, 2, 2, 4, 8, 1, 1};
  return sizes[static_cast<int>(t)];
}
constexpr const char* name_of(DType t) {
  constexpr const char* names[dtype_count] = {
      "f32", "f64", "f16", "bf16", "i32", "i64", "u8", "bool"};
  return names[static_cast<int>(t)];
}
constexpr bool is_float(DType t) {
  return t <= DType::bf16;
}
constexpr bool is_16bit(DType t) {
  return t == DType::f16 || t == DType::bf16;
}

// The upper half of an f32; conversion rounds to nearest even, NaN stays NaN.
struct bf16 {
  uint16_t bits = 0;
  bf16() = default;
  SG_INLINE explicit bf16(float x) {
    const uint32_t u = std::bit_cast<uint32_t>(x);
    const bool nan = (u & 0x7fffffffu) > 0x7f800000u;
    bits = static_cast<uint16_t>(nan ? (u >> 16) | 0x40u : (u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
  }
  SG_INLINE explicit operator float() const {
    return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  }
};

// IEEE binary16; conversion rounds to nearest even, overflow goes to infinity, subnormals are kept.
struct f16 {
  uint16_t bits = 0;
  f16() = default;
  SG_INLINE explicit f16(float x) {
    const uint32_t u = std::bit_cast<uint32_t>(x);
    const uint32_t sign = (u >> 16) & 0x8000u;
    const uint32_t magnitude = u & 0x7fffffffu;
    uint32_t half;
    if (magnitude >= 0x47800000u) {  // 65536 and above, infinity, NaN
      half = magnitude > 0x7f800000u ? 0x7e00u | ((magnitude >> 13) & 0x3ffu) : 0x7c00u;
    } else if (magnitude < 0x38800000u) {  // below 2^-14: adding 0.5 leaves the rounded subnormal
                                           // in the low bits
      half = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
    } else {
      half = (magnitude + 0xc8000fffu + ((magnitude >> 13) & 1u)) >> 13;
    }
    bits = static_cast<uint16_t>(sign | half);
  }
  SG_INLINE explicit operator float() const {
    const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
    const uint32_t magnitude = bits & 0x7fffu;
    if (magnitude < 0x400u) {  // zero and subnormals: m · 2^-24, exact in f32
      const float value = static_cast<float>(magnitude) * 5.9604644775390625e-8f;
      return std::bit_cast<float>(std::bit_cast<uint32_t>(value) | sign);
    }
    const uint32_t exponent = magnitude >= 0x7c00u ? 0x70000000u : 0x38000000u;
    return std::bit_cast<float>(sign | ((magnitude << 13) + exponent));
  }
};
static_assert(sizeof(bf16) == 2 && sizeof(f16) == 2);

template <class T>
inline constexpr DType dtype_of = [] {
  if constexpr (std::is_same_v<T, float>)
    return DType::f32;
  else if constexpr (std::is_same_v<T, double>)
    return DType::f64;
  else if constexpr (std::is_same_v<T, f16>)
    return DType::f16;
  else if constexpr (std::is_same_v<T, bf16>)
    return DType::bf16;
  else if constexpr (std::is_same_v<T, int32_t>)
    return DType::i32;
  else if constexpr (std::is_same_v<T, int64_t>)
    return DType::i64;
  else if constexpr (std::is_same_v<T, uint8_t>)
    return DType::u8;
  else if constexpr (std::is_same_v<T, bool>)
    return DType::boolean;
  else
    static_assert(sizeof(T) == 0, "not an element type");
}();

}  // namespace sg

// How kernels touch memory: every access, of one element or of up to 16 bytes at once, is one of
// these, on global and on shared memory alike. The software device of the tests brings its own
// SG_LOAD and SG_STORE, which report each lane's address and size to its checkers and counters.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/dtype.h"

namespace sg::kernels::cuda {

// What an element is computed in, and what sums and statistics are kept in.
template <class T>
using Compute = std::conditional_t<std::is_same_v<T, f16> || std::is_same_v<T, bf16>, float, T>;
template <class T>
using Statistic = std::conditional_t<std::is_same_v<T, double>, double, float>;

// Elements of T in the widest access.
template <class T>
inline constexpr int wide = 16 / static_cast<int>(sizeof(T));

template <size_t bytes>
struct WordOf;
template <>
struct WordOf<1> {
  using type = uint8_t;
};
template <>
struct WordOf<2> {
  using type = uint16_t;
};
template <>
struct WordOf<4> {
  using type = uint32_t;
};
template <>
struct WordOf<8> {
  using type = uint2;
};
template <>
struct WordOf<16> {
  using type = uint4;
};
template <size_t bytes>
using Word = typename WordOf<bytes>::type;

#ifndef SG_LOAD
#define SG_LOAD(Type, from) (*reinterpret_cast<const Type*>(from))
#define SG_STORE(Type, to, value) (*reinterpret_cast<Type*>(to) = (value))
#endif

// N elements from an address that is a multiple of their size; N · sizeof(T) is 1, 2, 4, 8, 16, or
// a multiple of 16, which takes several accesses.
template <int N, class T>
__device__ __forceinline__ void load(const T* from, T (&to)[N]) {
  constexpr size_t bytes = N * sizeof(T);
  if constexpr (bytes <= 16) {
    const Word<bytes> word = SG_LOAD(Word<bytes>, from);
    std::memcpy(static_cast<void*>(to), &word, bytes);
  } else {
#pragma unroll
    for (int part = 0; part < static_cast<int>(bytes / 16); ++part) {
      const Word<16> word = SG_LOAD(Word<16>, from + part * wide<T>);
      std::memcpy(static_cast<void*>(to + part * wide<T>), &word, 16);
    }
  }
}
template <int N, class T>
__device__ __forceinline__ void store(T* to, const T (&from)[N]) {
  constexpr size_t bytes = N * sizeof(T);
  if constexpr (bytes <= 16) {
    Word<bytes> word;
    std::memcpy(&word, static_cast<const void*>(from), bytes);
    SG_STORE(Word<bytes>, to, word);
  } else {
#pragma unroll
    for (int part = 0; part < static_cast<int>(bytes / 16); ++part) {
      Word<16> word;
      std::memcpy(&word, static_cast<const void*>(from + part * wide<T>), 16);
      SG_STORE(Word<16>, to + part * wide<T>, word);
    }
  }
}

// One element.
template <class T>
__device__ __forceinline__ T read(const T* from) {
  T to[1];
  load<1>(from, to);
  return to[0];
}
template <class T>
__device__ __forceinline__ void write(T* to, T x) {
  const T from[1] = {x};
  store<1>(to, from);
}

// N elements widened to S, or rounded from it.
template <int N, class T, class S>
__device__ __forceinline__ void load_as(const T* from, S (&to)[N]) {
  T raw[N];
  load<N>(from, raw);
#pragma unroll
  for (int i = 0; i < N; ++i)
    to[i] = static_cast<S>(raw[i]);
}
template <int N, class T, class S>
__device__ __forceinline__ void store_as(T* to, const S (&from)[N]) {
  T raw[N];
#pragma unroll
  for (int i = 0; i < N; ++i)
    raw[i] = static_cast<T>(from[i]);
  store<N>(to, raw);
}

// Host: whether all of these addresses (null: none) are multiples of 16 bytes.
template <class... Pointers>
bool aligned(const Pointers*... pointers) {
  const uintptr_t bits = (reinterpret_cast<uintptr_t>(pointers) | ... | 0);
  return bits % 16 == 0;
}

}  // namespace sg::kernels::cuda

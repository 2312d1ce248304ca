// CUDA C++ for the C++ compiler, included before every .cu file: the keywords vanish, threadIdx and
// the barriers talk to the executor, device functions have their host meaning.
#pragma once
#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <source_location>
#include <tuple>
#include <type_traits>
#include <utility>

#include "tests/cuda_sim/executor.h"
#include "tests/cuda_sim/memory.h"
#include "tests/cuda_sim/race.h"

#undef __global__
#undef __device__
#undef __host__
#undef __constant__
#undef __launch_bounds__
#undef __forceinline__
#define __global__
#define __device__
#define __host__
#define __constant__
#define __launch_bounds__(...)
#define __forceinline__ inline

// Kernels name shared memory by these alone: each array is its own allocation, unwritten at the
// start of every block, so that the checkers see what lies beside it.
#define SG_SHARED(T, name, ...)                     \
  using name##_array = T __VA_ARGS__;               \
  static const char name##_key = 0;                 \
  name##_array& name = *static_cast<name##_array*>( \
      ::simt::shared_array(&name##_key, sizeof(name##_array), alignof(name##_array)))
#define SG_DYN_SHARED(T, name) T* name = static_cast<T*>(::simt::dynamic_shared())

// Accesses of kernels (kernels/cuda/access.h), each reported with its address and size.
#define SG_LOAD(Type, from) (::simt::reported_load<Type>(from))
#define SG_STORE(Type, to, value) (::simt::reported_store<Type>(to, value))

namespace simt {

template <class W>
__attribute__((always_inline)) inline W reported_load(const void* from) {
  W word;
  if constexpr (sizeof(W) == 16) {
    const race::Sixteen bits = race::load16(from);
    std::memcpy(&word, &bits, sizeof word);
  } else {
    const uint64_t bits = race::load(from, sizeof(W));
    std::memcpy(&word, &bits, sizeof word);
  }
  return word;
}
template <class W>
__attribute__((always_inline)) inline void reported_store(void* to, const W& word) {
  if constexpr (sizeof(W) == 16) {
    race::Sixteen bits;
    std::memcpy(&bits, &word, sizeof word);
    race::store16(to, bits);
  } else {
    uint64_t bits = 0;
    std::memcpy(&bits, &word, sizeof word);
    race::store(to, bits, sizeof(W));
  }
}

// NVIDIA's header has this template too, but hands the kernel on as an untyped address.
template <class... Parameters, class... Arguments>
cudaError_t launch_typed(const cudaLaunchConfig_t* config,
                         void (*kernel)(Parameters...),
                         Arguments&&... arguments) {
  return launch(*config,
                [kernel,
                 values = std::tuple<std::decay_t<Parameters>...>(
                     std::forward<Arguments>(arguments)...)] { std::apply(kernel, values); });
}

template <class T>
struct Shuffle {
  T value, result;
  int source;  // −1: keeps its own
};

template <class T>
T shuffle(uint32_t mask, T value, int source, std::source_location where) {
  static_assert(sizeof(T) <= 8 && std::is_trivially_copyable_v<T>);
  Shuffle<T> mine{value, value, source};
  warp_operation(
      Meeting::shuffle,
      mask,
      &mine,
      [](void** payloads, uint32_t lanes) {
        for (int lane = 0; lane < 32; ++lane) {
          if (!(lanes >> lane & 1))
            continue;
          auto* to = static_cast<Shuffle<T>*>(payloads[lane]);
          if (to->source < 0)
            continue;
          if (!(lanes >> to->source & 1))
            device_trap("a shuffle reads a lane outside its mask", current->where);
          to->result = static_cast<Shuffle<T>*>(payloads[to->source])->value;
        }
      },
      where);
  return mine.result;
}

inline int lane() {
  return static_cast<int>(current->linear % 32);
}

// By compare and swap, which the race checker knows as an atomic access.
template <class T, class F>
T atomic_update(T* p, F update) {
  using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
  static_assert(sizeof(T) == sizeof(Bits));
  Bits* bits = reinterpret_cast<Bits*>(p);
  Bits old_bits = __atomic_load_n(bits, __ATOMIC_RELAXED), new_bits;
  T old_value, new_value;
  do {
    std::memcpy(&old_value, &old_bits, sizeof(T));
    new_value = update(old_value);
    std::memcpy(&new_bits, &new_value, sizeof(T));
  } while (!__atomic_compare_exchange_n(
      bits, &old_bits, new_bits, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED));
  return old_value;
}

}  // namespace simt

#define cudaLaunchKernelEx ::simt::launch_typed
// The address of a kernel says nothing here; the launch checks what was asked for last.
#define cudaFuncSetAttribute(kernel, attribute, value) ::simt::allow_shared_memory(value)

// ---- barriers and warp operations ----

#define SIMT_WHERE std::source_location where = std::source_location::current()

inline void __syncthreads(SIMT_WHERE) {
  simt::block_barrier(simt::Meeting::sync, false, where);
}
inline int __syncthreads_count(int vote, SIMT_WHERE) {
  return simt::block_barrier(simt::Meeting::count, vote != 0, where);
}
inline void __syncwarp(unsigned mask = ~0u, SIMT_WHERE) {
  simt::warp_operation(
      simt::Meeting::sync, mask, nullptr, [](void**, uint32_t) {}, where);
}
template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32, SIMT_WHERE) {
  const int first = simt::lane() & ~(width - 1);
  return simt::shuffle(mask, value, first + (source & (width - 1)), where);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32, SIMT_WHERE) {
  const int source = simt::lane() ^ bits, end = (simt::lane() & ~(width - 1)) + width;
  return simt::shuffle(mask, value, source < end ? source : -1, where);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned distance, int width = 32, SIMT_WHERE) {
  const int source = simt::lane() - static_cast<int>(distance), first = simt::lane() & ~(width - 1);
  return simt::shuffle(mask, value, source >= first ? source : -1, where);
}
inline unsigned __ballot_sync(unsigned mask, int vote, SIMT_WHERE) {
  unsigned mine = vote != 0;
  simt::warp_operation(
      simt::Meeting::ballot,
      mask,
      &mine,
      [](void** payloads, uint32_t lanes) {
        unsigned votes = 0;
        for (int lane = 0; lane < 32; ++lane)
          if (lanes >> lane & 1)
            votes |= *static_cast<unsigned*>(payloads[lane]) << lane;
        for (int lane = 0; lane < 32; ++lane)
          if (lanes >> lane & 1)
            *static_cast<unsigned*>(payloads[lane]) = votes;
      },
      where);
  return mine;
}

// ---- memory ----

template <class T>
T atomicAdd(T* p, std::type_identity_t<T> value) {
  return simt::atomic_update(p, [value](T old) { return static_cast<T>(old + value); });
}
template <class T>
T atomicMin(T* p, std::type_identity_t<T> value) {
  return simt::atomic_update(p, [value](T old) { return old < value ? old : value; });
}
inline int __popc(unsigned x) {
  return __builtin_popcount(x);
}
inline void __threadfence() {
  simt::race::fence();
}

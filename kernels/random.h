// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011). A draw
// depends on (seed, op id) as the key and (element, global sample, step) as the counter and on
// nothing else, so a recomputed, resharded or differently distributed run draws the same numbers.
#pragma once
#include <cstdint>

#include "kernels/dtype.h"

namespace sg {

// One op's source of random numbers. Dimension 0 of the op's tensor is the sample; element counts
// within a sample.
struct RandomKey {
  uint64_t seed = 0;
  uint64_t op = 0;  // hash of the module's path and the call's index in the micro-step
  uint64_t step = 0;
  uint64_t first_sample = 0;  // global number of the tensor's row 0
};

struct Philox4 {
  uint32_t word[4];
};

SG_INLINE Philox4 philox(uint64_t key, Philox4 counter) {
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = 0xD2511F53ull * counter.word[0], p1 = 0xCD9E8D57ull * counter.word[2];
    counter = {{static_cast<uint32_t>(p1 >> 32) ^ counter.word[1] ^ k0,
                static_cast<uint32_t>(p1),
                static_cast<uint32_t>(p0 >> 32) ^ counter.word[3] ^ k1,
                static_cast<uint32_t>(p0)}};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return counter;
}

// The 64-bit Philox key of (seed, op id): the finaliser of splitmix64 over both.
SG_INLINE uint64_t philox_key(const RandomKey& k) {
  uint64_t z = k.seed + 0x9E3779B97F4A7C15ull * (k.op + 1);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

// The counter of elements 4·quad … 4·quad+3 of a sample (absolute number), and their draws.
SG_INLINE Philox4 counter_of(const RandomKey& k, uint64_t sample, uint64_t quad) {
  return {{static_cast<uint32_t>(quad),
           static_cast<uint32_t>(sample),
           static_cast<uint32_t>(k.step),
           static_cast<uint32_t>((quad >> 32) ^ (sample >> 32 << 8))}};
}
SG_INLINE Philox4 draw(const RandomKey& k, uint64_t sample, uint64_t quad) {
  return philox(philox_key(k), counter_of(k, sample, quad));
}

// Uniform in [0, 1) with 24 bits, exact in f32.
SG_INLINE float uniform(uint32_t word) {
  return static_cast<float>(word >> 8) * 5.9604644775390625e-8f;
}

}  // namespace sg

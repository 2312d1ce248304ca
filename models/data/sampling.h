// A pseudo-random order of 0 … n−1 that needs no memory: a Feistel network permutes the next power
// of four, and values at or above n walk on until they fall below it (Black and Rogaway, "Ciphers
// with arbitrary finite domains", CT-RSA 2002).
#pragma once
#include <bit>
#include <cstdint>

#include "kernels/random.h"

namespace sg::models {

class Permutation {
 public:
  Permutation(uint64_t n, uint64_t seed, uint64_t epoch)
      : n_(n),
        half_(n <= 1 ? 1 : (static_cast<unsigned>(std::bit_width(n - 1)) + 1) / 2),
        mask_((uint64_t{1} << half_) - 1),
        key_(philox_key({.seed = seed, .op = epoch})) {}

  // The image of i < n; every value below n is the image of exactly one i.
  uint64_t operator()(uint64_t i) const {
    do
      i = feistel(i);
    while (i >= n_);
    return i;
  }

 private:
  uint64_t feistel(uint64_t x) const {
    uint64_t left = x >> half_, right = x & mask_;
    for (uint32_t round = 0; round < 4; ++round) {
      const Philox4 mixed = philox(
          key_, {{static_cast<uint32_t>(right), static_cast<uint32_t>(right >> 32), round, 0}});
      const uint64_t next = left ^ ((uint64_t{mixed.word[1]} << 32 | mixed.word[0]) & mask_);
      left = right;
      right = next;
    }
    return left << half_ | right;
  }

  uint64_t n_;
  unsigned half_;  // bits of half a block
  uint64_t mask_, key_;
};

}  // namespace sg::models

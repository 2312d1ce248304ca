// Philox4x32-10 of kernels/random.h for a vector of counters at once.
#pragma once
#include "kernels/cpu/vec.h"
#include "kernels/random.h"

namespace sg::kernels::SG_ISA {

inline constexpr int block_draws = 4 * Vec::lanes;  // draws that one call makes

// Words of quads quad … quad + lanes − 1 of a sample; words[j] holds element 4·quad + j in lane 0, and so on.
SG_INLINE void philox_block(const RandomKey& key, uint64_t sample, uint64_t quad, Words (&words)[4]) {
  uint32_t low[Vec::lanes], last[Vec::lanes];
  for (int lane = 0; lane < Vec::lanes; ++lane) {
    const Philox4 counter = counter_of(key, sample, quad + static_cast<uint64_t>(lane));
    low[lane] = counter.word[0];
    last[lane] = counter.word[3];
  }
  const Philox4 first = counter_of(key, sample, quad);
  Words c0 = load_words(low), c1(first.word[1]), c2(first.word[2]), c3 = load_words(last);
  const uint64_t bits = philox_key(key);
  uint32_t k0 = static_cast<uint32_t>(bits), k1 = static_cast<uint32_t>(bits >> 32);
  for (int round = 0; round < 10; ++round) {
    Words high0, high2;
    const Words low0 = multiply(c0, Words(0xD2511F53u), high0), low2 = multiply(c2, Words(0xCD9E8D57u), high2);
    c0 = high2 ^ c1 ^ Words(k0);
    c1 = low2;
    c2 = high0 ^ c3 ^ Words(k1);
    c3 = low0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  words[0] = c0;
  words[1] = c1;
  words[2] = c2;
  words[3] = c3;
}

// Values of four vectors put in the order of elements: out[4·lane + j] = x[j] at lane.
SG_INLINE void interleave(const Vec (&x)[4], float* out) {
  float lanes[4][Vec::lanes];
  for (int j = 0; j < 4; ++j) store(lanes[j], x[j], Full{});
  for (int lane = 0; lane < Vec::lanes; ++lane) {
    for (int j = 0; j < 4; ++j) out[4 * lane + j] = lanes[j][lane];
  }
}

// Uniform draws in [0, 1) of elements 4·quad … 4·quad + block_draws − 1 of a sample.
SG_INLINE void uniform_block(const RandomKey& key, uint64_t sample, uint64_t quad, float* out) {
  Words words[4];
  philox_block(key, sample, quad, words);
  const Vec x[4] = {uniform(words[0]), uniform(words[1]), uniform(words[2]), uniform(words[3])};
  interleave(x, out);
}

}  // namespace sg::kernels::SG_ISA

// Philox4x32-10 of kernels/random.h for a vector of counters at once.
#pragma once
#include "kernels/cpu/vec.h"
#include "kernels/random.h"

namespace sg::kernels::SG_ISA {

inline constexpr int block_draws = 4 * Vec::lanes;  // draws that one call makes

// Words of quads quad … quad + lanes − 1 of a sample, quad a multiple of lanes: words[j] holds
// element 4·(quad + l) + j in lane l.
SG_INLINE void philox_block(const RandomKey& key,
                            uint64_t sample,
                            uint64_t quad,
                            Words (&words)[4]) {
  alignas(64) static constexpr uint32_t lane_numbers[16] = {
      0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  const Philox4 first = counter_of(key, sample, quad);
  Words c0 = Words(first.word[0]) + load_words(lane_numbers), c1(first.word[1]), c2(first.word[2]),
        c3(first.word[3]);
  const uint64_t bits = philox_key(key);
  uint32_t k0 = static_cast<uint32_t>(bits), k1 = static_cast<uint32_t>(bits >> 32);
  for (int round = 0; round < 10; ++round) {
    Words high0, high2;
    const Words low0 = multiply(c0, Words(0xD2511F53u), high0),
                low2 = multiply(c2, Words(0xCD9E8D57u), high2);
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

// Values of four vectors put in the order of elements: out[4·l + j] = x[j] in lane l.
SG_INLINE void interleave(const Vec (&x)[4], float* out) {
  alignas(64) float lanes[4][Vec::lanes];
  for (int j = 0; j < 4; ++j)
    store(lanes[j], x[j], Full{});
  for (int lane = 0; lane < Vec::lanes; lane += 4) {
    __m128 row[4];
    for (int j = 0; j < 4; ++j)
      row[j] = _mm_load_ps(lanes[j] + lane);
    _MM_TRANSPOSE4_PS(row[0], row[1], row[2], row[3]);
    for (int j = 0; j < 4; ++j)
      _mm_storeu_ps(out + 4 * (lane + j), row[j]);
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

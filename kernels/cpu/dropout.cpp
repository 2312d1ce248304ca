// Random numbers: uniform and normal fills, and dropout. Blocks of draws start at multiples of
// block_draws within a sample, so every element meets its own counter whatever the cut into tasks.
#include "kernels/cpu/philox.h"
#include "kernels/cpu/runtime/parallel.h"
#include "kernels/entries.h"

namespace sg::kernels::SG_ISA {
namespace {

constexpr int64_t blocks_per_task = 128;

// body(at, n, sample, quad) for blocks of n ≤ block_draws elements that start at element `at` of x.
template <class F>
void for_blocks(const View& x, const RandomKey& key, StreamHandle stream, F&& body) {
  const int64_t total = x.numel();
  if (total == 0)
    return;
  const int64_t samples = x.rank == 0 ? 1 : x.shape[0], n = total / samples;
  const int64_t blocks = (n + block_draws - 1) / block_draws;
  parallel_chunks(stream,
                  plan::even_chunks(samples * blocks, blocks_per_task),
                  [&](int64_t begin, int64_t end, int) {
                    for (int64_t task = begin; task < end; ++task) {
                      const int64_t sample = task / blocks, start = task % blocks * block_draws;
                      const int64_t count = n - start < block_draws ? n - start : block_draws;
                      body(sample * n + start,
                           count,
                           key.first_sample + static_cast<uint64_t>(sample),
                           static_cast<uint64_t>(start / 4));
                    }
                  });
}

}  // namespace

void random_uniform(const View& out, RandomKey key, float low, float high, StreamHandle stream) {
  for_blocks(out, key, stream, [&](int64_t at, int64_t n, uint64_t sample, uint64_t quad) {
    float u[block_draws];
    uniform_block(key, sample, quad, u);
    for_lanes<Vec>(n, [&](int64_t i, auto part) {
      store(out.as<float>() + at + i, fma(load(u + i, Full{}), Vec(high - low), Vec(low)), part);
    });
  });
}

// Elements 4q, 4q+1 from the first two words of a draw, 4q+2, 4q+3 from the others.
void random_normal(
    const View& out, RandomKey key, float mean, float deviation, StreamHandle stream) {
  for_blocks(out, key, stream, [&](int64_t at, int64_t n, uint64_t sample, uint64_t quad) {
    Words words[4];
    philox_block(key, sample, quad, words);
    Vec x[4];
    for (int pair = 0; pair < 4; pair += 2)
      element::normal_pair(uniform(words[pair]), uniform(words[pair + 1]), x[pair], x[pair + 1]);
    float normal[block_draws];
    interleave(x, normal);
    for_lanes<Vec>(n, [&](int64_t i, auto part) {
      store(
          out.as<float>() + at + i, fma(load(normal + i, Full{}), Vec(deviation), Vec(mean)), part);
    });
  });
}

template <class T>
void dropout(const View& x, const View& y, float probability, RandomKey key, StreamHandle stream) {
  using V = Lanes<T>;
  const Statistic<T> scale = 1 / (1 - static_cast<Statistic<T>>(probability));
  for_blocks(x, key, stream, [&](int64_t at, int64_t n, uint64_t sample, uint64_t quad) {
    float u[block_draws];
    uniform_block(key, sample, quad, u);
    const T* const in = x.as<T>() + at;
    T* const out = y.as<T>() + at;
    for_lanes<V>(n, [&](int64_t i, auto part) {
      const V kept = load(in + i, part) * V(scale);
      if constexpr (lanes_in<V> == 1)
        store(out + i, select(u[i] < probability, V(0), kept), part);
      else
        store(out + i, select(load(u + i, Full{}) < Vec(probability), V(0), kept), part);
    });
  });
}

SG_FOR_FLOATS(dropout)

}  // namespace sg::kernels::SG_ISA

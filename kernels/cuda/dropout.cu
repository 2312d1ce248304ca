// Random numbers: uniform and normal fills, and dropout, with the numbers of
// kernels/cpu/dropout.cpp. A thread makes one Philox draw, for four elements.
#include "kernels/cuda/access.h"
#include "kernels/cuda/launch.h"
#include "kernels/element.h"
#include "kernels/entries.h"
#include "kernels/random.h"

namespace sg::kernels::cuda {
namespace {

constexpr int threads = 256;
constexpr int draws = 4;  // elements that one Philox counter serves

// `samples` of n elements each, in quads; the last quad of a sample may be short.
struct Samples {
  RandomKey key;
  int64_t n, quads, total_quads;
  bool aligned;  // all quads are whole and begin where an access of four elements may

  // The quad's first element within the array, and how many there are.
  __device__ int64_t first(int64_t quad) const { return quad / quads * n + quad % quads * draws; }
  __device__ int count(int64_t quad) const {
    const int64_t left = n - quad % quads * draws;
    return left < draws ? static_cast<int>(left) : draws;
  }
  __device__ Philox4 draw(int64_t quad) const {
    const uint64_t sample = key.first_sample + static_cast<uint64_t>(quad / quads);
    return sg::draw(key, sample, static_cast<uint64_t>(quad % quads));
  }
};

Samples samples_of(const View& x, const RandomKey& key, bool aligned) {
  const int64_t total = x.numel();
  const int64_t samples = x.rank == 0 ? 1 : x.shape[0];
  const int64_t n = samples == 0 ? 0 : total / samples;
  const int64_t quads = (n + draws - 1) / draws;
  return {key, n, quads, total == 0 ? 0 : samples * quads, aligned && n % draws == 0};
}

template <class T, class S>
__device__ void store_quad(const Samples& s, int64_t quad, T* out, const S (&x)[draws]) {
  T* const to = out + s.first(quad);
  if (s.aligned)
    return store_as<draws>(to, x);
  for (int j = 0; j < s.count(quad); ++j)
    write(to + j, static_cast<T>(x[j]));
}
template <class T, class S>
__device__ void load_quad(const Samples& s, int64_t quad, const T* in, S (&x)[draws]) {
  const T* const from = in + s.first(quad);
  if (s.aligned)
    return load_as<draws>(from, x);
  for (int j = 0; j < s.count(quad); ++j)
    x[j] = static_cast<S>(read(from + j));
}

template <class F>
__device__ void for_quads(const Samples& s, F&& body) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * threads;
  for (int64_t q = static_cast<int64_t>(blockIdx.x) * threads + threadIdx.x; q < s.total_quads;
       q += step)
    body(q, s.draw(q));
}

__global__ void __launch_bounds__(threads)
    uniform_kernel(Samples samples, float* out, float low, float span) {
  for_quads(samples, [&](int64_t quad, const Philox4& words) {
    float x[draws];
    for (int j = 0; j < draws; ++j)
      x[j] = element::fma(uniform(words.word[j]), span, low);
    store_quad(samples, quad, out, x);
  });
}

__global__ void __launch_bounds__(threads)
    normal_kernel(Samples samples, float* out, float mean, float deviation) {
  for_quads(samples, [&](int64_t quad, const Philox4& words) {
    float x[draws];
    for (int pair = 0; pair < draws; pair += 2) {
      const float first = uniform(words.word[pair]);
      const float second = uniform(words.word[pair + 1]);
      element::normal_pair(first, second, x[pair], x[pair + 1]);
    }
    for (int j = 0; j < draws; ++j)
      x[j] = element::fma(x[j], deviation, mean);
    store_quad(samples, quad, out, x);
  });
}

template <class T, class S>
__global__ void __launch_bounds__(threads)
    dropout_kernel(Samples samples, const T* x, T* y, float probability, S scale) {
  for_quads(samples, [&](int64_t quad, const Philox4& words) {
    S values[draws] = {};
    load_quad(samples, quad, x, values);
    for (int j = 0; j < draws; ++j)
      values[j] = uniform(words.word[j]) < probability ? S(0) : values[j] * scale;
    store_quad(samples, quad, y, values);
  });
}

}  // namespace

void random_uniform(const View& out, RandomKey key, float low, float high, StreamHandle stream) {
  const Samples samples = samples_of(out, key, aligned(out.as<float>()));
  if (samples.total_quads == 0)
    return;
  const unsigned blocks = blocks_for(samples.total_quads, threads);
  const float span = high - low;
  launch(
      uniform_kernel, blocks, threads, 0, stream_of(stream), samples, out.as<float>(), low, span);
}

void random_normal(
    const View& out, RandomKey key, float mean, float deviation, StreamHandle stream) {
  const Samples samples = samples_of(out, key, aligned(out.as<float>()));
  if (samples.total_quads == 0)
    return;
  launch(normal_kernel,
         blocks_for(samples.total_quads, threads),
         threads,
         0,
         stream_of(stream),
         samples,
         out.as<float>(),
         mean,
         deviation);
}

template <class T>
void dropout(const View& x, const View& y, float probability, RandomKey key, StreamHandle stream) {
  using S = Statistic<T>;
  const Samples samples = samples_of(x, key, aligned(x.as<T>(), y.as<T>()));
  if (samples.total_quads == 0)
    return;
  launch(dropout_kernel<T, S>,
         blocks_for(samples.total_quads, threads),
         threads,
         0,
         stream_of(stream),
         samples,
         x.as<T>(),
         y.as<T>(),
         probability,
         1 / (1 - static_cast<S>(probability)));
}

SG_FOR_FLOATS(dropout)

}  // namespace sg::kernels::cuda

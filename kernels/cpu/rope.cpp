// Rotary embedding (Su et al., 2021): dimensions (i, i + d/2) of a head turn by position ·
// theta^(−2i/d), or what rope.h makes of that.
#include <cmath>

#include "kernels/cpu/runtime/parallel.h"
#include "kernels/cpu/vec.h"
#include "kernels/entries.h"

namespace sg::kernels::SG_ISA {
namespace {

constexpr int64_t positions_per_task = 16;
constexpr int64_t pairs_at_once = 64;

}  // namespace

template <class T>
void rope(const View& x,
          const View& positions,
          const RopeOptions& options,
          bool inverse,
          const View& y,
          StreamHandle stream) {
  using V = Lanes<T>;
  using S = Statistic<T>;
  const int64_t batch = x.shape[0], time = x.shape[1], heads = x.shape[2], half = x.shape[3] / 2;
  const double magnitude = options.magnitude;
  // Angles are made in f64, since positions run into the thousands, once for all sequences and
  // heads.
  const auto turn_pairs = [&](int64_t t, int64_t first, int64_t count, const double* frequency) {
    S cosine[pairs_at_once], sine[pairs_at_once];
    const double position = static_cast<double>(positions.as<int64_t>()[t]) * (inverse ? -1 : 1);
    for (int64_t i = 0; i < count; ++i) {
      cosine[i] = static_cast<S>(magnitude * std::cos(position * frequency[i]));
      sine[i] = static_cast<S>(magnitude * std::sin(position * frequency[i]));
    }
    for (int64_t b = 0; b < batch; ++b) {
      for (int64_t h = 0; h < heads; ++h) {
        const T* const in =
            x.as<T>() + b * x.strides[0] + t * x.strides[1] + h * x.strides[2] + first;
        T* const out = y.as<T>() + b * y.strides[0] + t * y.strides[1] + h * y.strides[2] + first;
        for_lanes<V>(count, [&](int64_t i, auto part) {
          const V c = load(cosine + i, part), s = load(sine + i, part);
          const V low = load(in + i, part), high = load(in + half + i, part);
          store(out + i, fma(low, c, -(high * s)), part);
          store(out + half + i, fma(low, s, high * c), part);
        });
      }
    }
  };
  parallel_chunks(stream, time, positions_per_task, [&](int64_t begin, int64_t end, int) {
    for (int64_t first = 0; first < half; first += pairs_at_once) {
      const int64_t count = half - first < pairs_at_once ? half - first : pairs_at_once;
      double frequency[pairs_at_once];
      for (int64_t i = 0; i < count; ++i)
        frequency[i] = rope_frequency(options, first + i, half);
      for (int64_t t = begin; t < end; ++t)
        turn_pairs(t, first, count, frequency);
    }
  });
}

SG_FOR_FLOATS(rope)

}  // namespace sg::kernels::SG_ISA

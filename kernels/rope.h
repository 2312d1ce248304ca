// Angles of the rotary embedding (Su et al., 2021) and how they are stretched to longer contexts,
// for host and device.
#pragma once
#include <cmath>
#include <cstdint>

#include "kernels/dtype.h"

namespace sg {

// none: as trained. llama3: Llama 3.1's, slow pairs divided by `factor`, fast ones left, a ramp
// between. yarn: Peng et al., 2023, a ramp over the pairs themselves.
enum class RopeScaling : uint8_t { none, llama3, yarn };

struct RopeOptions {
  float theta = 10000;
  RopeScaling scaling = RopeScaling::none;
  float factor = 1;            // by which the context grows
  float original_context = 1;  // positions before that
  // Turns within the original context: pairs of fewer than `slow` are divided by the factor, those
  // of more than `fast` stay. llama3's usual bounds are 1 and 4, yarn's 1 and 32.
  float slow = 1, fast = 4;
  bool whole_pairs = true;  // yarn: the ramp begins and ends at whole pairs
  float magnitude = 1;      // of the turned vectors: yarn's attention factor
};

// Angle per position of pair `pair` of `half`.
SG_INLINE double rope_frequency(const RopeOptions& o, int64_t pair, int64_t half) {
  constexpr double turn = 6.283185307179586;
  const double theta = o.theta, factor = o.factor, context = o.original_context;
  const double place = static_cast<double>(pair) / static_cast<double>(half);
  const double frequency = std::pow(theta, -place);
  if (o.scaling == RopeScaling::none)
    return frequency;
  double kept = 0;  // share of the frequency as trained
  if (o.scaling == RopeScaling::llama3) {
    const double turns = context * frequency / turn;
    kept = (turns - o.slow) / (static_cast<double>(o.fast) - o.slow);
  } else {
    const auto pair_of = [&](double turns) {
      return static_cast<double>(half) * std::log(context / (turns * turn)) / std::log(theta);
    };
    double first = pair_of(o.fast), last = pair_of(o.slow);
    if (o.whole_pairs)
      first = std::floor(first), last = std::ceil(last);
    first = std::fmax(first, 0);
    last = std::fmin(last, static_cast<double>(2 * half - 1));
    const double width = first == last ? 0.001 : last - first;
    kept = 1 - (static_cast<double>(pair) - first) / width;
  }
  kept = std::fmin(std::fmax(kept, 0), 1);
  return frequency / factor * (1 - kept) + frequency * kept;
}

}  // namespace sg

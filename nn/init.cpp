#include "nn/init.h"

#include <algorithm>
#include <cmath>

#include "core/ops.h"

namespace sg::nn {
namespace {

// Draws into `parameter` by runs of rows, so that a large table needs no second buffer of its size.
// The values don't depend on the runs: the key counts rows as samples.
template <class Draw>
void draw_rows(const Tensor& parameter, RandomKey key, Draw&& draw) {
  if (parameter.numel() == 0)
    return;
  constexpr int64_t run_elements = 1 << 18;
  const int64_t rows = parameter.size(0),
                run = std::max<int64_t>(1, run_elements / (parameter.numel() / rows));
  CategoryScope scope(Category::workspace);
  DeviceGuard device(parameter.device());
  for (int64_t begin = 0; begin < rows; begin += run) {
    const Tensor part = parameter.slice(0, begin, std::min(rows, begin + run));
    key.first_sample = static_cast<uint64_t>(begin);
    copy_(part, draw(part.shape(), key));
    if (parameter.device().type == DeviceType::meta)
      return;  // a dry run has booked what a draw takes
  }
}

}  // namespace

Initializer constant(double value) {
  return [value](const Tensor& parameter, const RandomKey&) { fill_(parameter, value); };
}

Initializer normal(float deviation, float mean) {
  check(deviation >= 0 && std::isfinite(deviation) && std::isfinite(mean),
        "normal: mean {} and deviation {} are no distribution",
        mean,
        deviation);
  return [=](const Tensor& parameter, const RandomKey& key) {
    draw_rows(parameter, key, [=](const Shape& s, const RandomKey& k) {
      return random_normal(s, k, mean, deviation);
    });
  };
}

Initializer uniform(float bound) {
  check(bound >= 0 && std::isfinite(bound), "uniform: the bound must not be negative: {}", bound);
  return [=](const Tensor& parameter, const RandomKey& key) {
    draw_rows(parameter, key, [=](const Shape& s, const RandomKey& k) {
      return random_uniform(s, k, -bound, bound);
    });
  };
}

Initializer fan_in_uniform(int64_t fan_in) {
  check(fan_in > 0, "fan_in_uniform: the number of inputs must be positive: {}", fan_in);
  return uniform(1 / std::sqrt(static_cast<float>(fan_in)));
}
Initializer xavier_uniform(int64_t fan_in, int64_t fan_out) {
  check(fan_in > 0 && fan_out > 0,
        "xavier_uniform: numbers of inputs and outputs must be positive: {}, {}",
        fan_in,
        fan_out);
  return uniform(std::sqrt(6 / (static_cast<float>(fan_in) + static_cast<float>(fan_out))));
}
Initializer kaiming_normal(int64_t fan_in) {
  check(fan_in > 0, "kaiming_normal: the number of inputs must be positive: {}", fan_in);
  return normal(std::sqrt(2 / static_cast<float>(fan_in)));
}

uint64_t hash_path(std::string_view path) {
  uint64_t hash = 0xcbf29ce484222325ull;
  for (const char c : path)
    hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3ull;
  return hash;
}

}  // namespace sg::nn

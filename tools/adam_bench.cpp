// The optimizer's pass on the host beside the speed of its memory: bytes a second that AdamW moves
// (28 for a parameter in f32 and in 16 bit: gradient, moments, master and parameter, read and
// written once) against an in-place scale of an array as large, in the same run, in turn.
//   build/bin/adam_bench [THREADS [ELEMENTS]]
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "core/ops.h"
#include "optim/optimizer.h"

namespace {

using namespace sg;
using Clock = std::chrono::steady_clock;

constexpr int repeats = 7;
constexpr double adam_bytes = 28;  // a parameter
constexpr double scale_bytes = 8;  // an element, read and written

template <class Body>
double seconds_of(const Body& body) {
  const auto begin = Clock::now();
  body();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

optim::Slice slice_of(optim::Optimizer& adam, int64_t elements, DType precision) {
  const Device here = current_device();
  optim::Slice slice{full({elements}, 0.5), full({elements}, 0.25, precision), {}, {}, 0};
  if (is_16bit(precision))
    slice.parameter = zeros({elements}, precision);
  slice.state = adam.make_state(elements, here);
  return slice;
}

void compare(int64_t elements, DType precision) {
  const auto adam = optim::make_optimizer({});
  const optim::Slice slice = slice_of(*adam, elements, precision);
  const Tensor stream = full({elements}, 1);
  std::vector<double> updates, scales;
  for (int i = 0; i <= repeats; ++i) {
    const double update = seconds_of([&] { adam->step({&slice, 1}); });
    const double scale =
        seconds_of([&] { pointwise_(PointwiseOp::mul_scalar, stream, {stream}, 1.0000001); });
    if (i == 0)
      continue;  // pages are touched
    updates.push_back(update);
    scales.push_back(scale);
  }
  const double n = static_cast<double>(elements);
  const double pass = adam_bytes * n / median(updates);
  const double rate = scale_bytes * n / median(scales);
  std::printf("%s\n",
              fmt::format("{:<5} AdamW {:6.2f} GB/s  in-place scale {:6.2f} GB/s  share {:.3f}",
                          name_of(precision),
                          pass * 1e-9,
                          rate * 1e-9,
                          pass / rate)
                  .c_str());
}

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : available_processors();
  const int64_t elements = argc > 2 ? std::atoll(argv[2]) : 50'000'000;
  if (threads < 1 || elements < 1) {
    std::fprintf(stderr, "usage: adam_bench [THREADS [ELEMENTS]]\n");
    return 2;
  }
  configure(cpu(), {.threads = threads});
  std::printf("%s\n", fmt::format("{} threads, {} parameters", threads, elements).c_str());
  for (const DType precision : {DType::f32, DType::bf16, DType::f16})
    compare(elements, precision);
}

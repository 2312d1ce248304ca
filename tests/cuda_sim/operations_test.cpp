#include "tests/cuda_sim/operations.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "tests/cuda_sim/software_device.h"
#include "tests/cuda_sim/views.h"

namespace {

using simt::Order;
using Values = std::vector<double>;

TEST(SimOperations, MeanWhatCudaSays) {
  for (const Order order : {Order::forward, Order::reverse, Order::random})
    for (const int threads : {1, 32, 75, 128}) {
      simt::reset({.order = order, .seed = 5});
      Values in;
      for (int i = 0; i < threads; ++i)
        in.push_back(i * 7 % 11 - 4);
      const sg::View in_view = simt::device_view<int32_t>({threads}, in),
                     out_view = simt::device_view<int32_t>({threads, 5});
      simt::run_operations(in_view.as<int>(), out_view.as<int>(), static_cast<unsigned>(threads));
      const Values out = simt::values<int32_t>(out_view);
      const auto positive = [](auto begin, auto end) {
        return std::count_if(begin, end, [](double x) { return x > 0; });
      };
      for (int i = 0; i < threads; ++i) {
        const auto self = in.begin() + i, warp = in.begin() + i / 32 * 32;
        const auto warp_end = in.begin() + std::min(threads, i / 32 * 32 + 32);
        const Values expected = {static_cast<double>(positive(in.begin(), in.end())),
                                 static_cast<double>(positive(warp, self)),
                                 std::accumulate(warp, self + 1, 0.0),
                                 std::accumulate(self, warp_end, 0.0),
                                 in[static_cast<size_t>(threads - 1 - i)]};
        EXPECT_EQ(Values(out.begin() + 5 * i, out.begin() + 5 * i + 5), expected)
            << threads << " threads, thread " << i;
      }
      EXPECT_EQ(simt::take_faults(), std::vector<std::string>{});
    }
}

}  // namespace

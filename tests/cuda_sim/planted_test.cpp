// Every planted fault is caught, in every order of threads, and its correct twin is not accused.
#include "tests/cuda_sim/planted.h"

#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <vector>

#include "tests/cuda_sim/software_device.h"

namespace {

using simt::Order, simt::Planted;

struct Case {
  const char* name;
  Planted fault;
  const char* message;       // part of what must be reported
  bool by_accesses = false;  // found by the checker of accesses; the address sanitizer ends the
                             // process instead, or misses it
};
void PrintTo(const Case& c, std::ostream* out) {
  *out << c.name;
}

const Case cases[] = {
    {"DivergentBarrier", Planted::divergent_barrier, "divergent block barrier"},
    {"SkippedBarrier", Planted::skipped_barrier, "returned"},
    {"ShuffleBadMask",
     Planted::shuffle_bad_mask,
     "a lane named in the mask of a warp operation returned"},
    {"ShuffleOutside", Planted::shuffle_outside, "a shuffle reads a lane outside its mask"},
    {"MissingBarrier", Planted::missing_barrier, "race", true},
    {"MissingWarpBarrier", Planted::missing_warp_barrier, "race", true},
    {"MissingAtomic", Planted::missing_atomic, "race", true},
    {"MissingFence", Planted::missing_fence, "race of a read with a write", true},
    {"PastShared", Planted::past_shared, "access outside any allocation", true},
    {"PastGlobal", Planted::past_global, "access outside any allocation", true},
    {"UnwrittenShared", Planted::unwritten_shared, "read of memory never written", true},
    {"UnwrittenGlobal", Planted::unwritten_global, "read of memory never written", true},
};
constexpr Order orders[] = {Order::forward, Order::reverse, Order::random};
constexpr int64_t n = 100;  // a tail of 28 in the second block

// What is reported when the kernel for `like` runs, correct or with that fault.
std::vector<std::string> run(Planted like, bool faulty, Order order) {
  simt::reset({.order = order, .seed = 3});
  const bool fill = !(faulty && like == Planted::unwritten_global);
  int* data = nullptr;
  EXPECT_EQ(cudaMalloc(reinterpret_cast<void**>(&data), n * sizeof(int)), cudaSuccess);
  if (fill)
    cudaMemset(data, 0, n * sizeof(int));
  simt::run_planted(faulty ? like : Planted::none, like, data, n);
  const cudaError_t error = cudaDeviceSynchronize();
  const auto faults = simt::take_faults();
  EXPECT_EQ(error, faults.empty() ? cudaSuccess : cudaErrorIllegalAddress);
  return faults;
}

class PlantedFault : public testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(All, PlantedFault, testing::ValuesIn(cases), [](const auto& c) {
  return c.param.name;
});

TEST_P(PlantedFault, IsCaughtInEveryOrder) {
  const Case& c = GetParam();
  if (c.by_accesses && !simt::checks_accesses())
    GTEST_SKIP() << "this build does not watch accesses";
  for (const Order order : orders) {
    const auto faults = run(c.fault, true, order);
    ASSERT_FALSE(faults.empty()) << "order " << static_cast<int>(order);
    std::string all;
    for (const std::string& line : faults)
      all += line + "\n";
    EXPECT_NE(all.find(c.message), std::string::npos) << all;
    EXPECT_NE(all.find("planted.cu:"), std::string::npos) << "names no line: " << all;
  }
}

TEST_P(PlantedFault, CorrectTwinIsNotAccused) {
  for (const Order order : orders)
    EXPECT_EQ(run(GetParam().fault, false, order), std::vector<std::string>{});
}

TEST(PlantedFaultDeathTest, AddressSanitizerSeesAccessesOutside) {
#if defined(__SANITIZE_ADDRESS__)
  // UBSan, where it is on, knows the array and sees it first.
  EXPECT_DEATH(run(Planted::past_shared, true, Order::forward),
               "index 64 out of bounds|use-after-poison");
  EXPECT_DEATH(run(Planted::past_global, true, Order::forward), "use-after-poison");
#else
  GTEST_SKIP() << "not built with the address sanitizer";
#endif
}

TEST(PlantedFaultDeathTest, HostCannotTouchDeviceMemory) {
  simt::reset({});
  int* data = nullptr;
  ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&data), sizeof(int)), cudaSuccess);
  EXPECT_DEATH(*data = 1, "");
}

}  // namespace

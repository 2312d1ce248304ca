// How evenly the kernels of a training step share out among threads, by their plans.
#include "tools/balance.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "kernels/cpu/runtime/plan.h"

namespace {

using namespace sg;
using kernels::ThreadPool;
using tools::Kernel;
using tools::Phase;

// What isn't cut further, since it would lose more than it gains, and the share that the busiest of
// 64 threads has.
const std::map<std::string, double> exceptions = {
    // One thread makes the lists of rows by id, a hundredth of a millisecond of a step.
    {"gradient of the tokens' table", 2.1},
    {"gradient of the positions", 2.1},
    // Over before another thread has woken up.
    {"optimizer, a vector of 3072", 64},
    {"mean of the losses", 64},
};

TEST(Balance, TheBusiestThreadHasLittleMoreThanItsShareOfEveryKernelOfAStep) {
  for (const int64_t batch : {1, 4}) {
    for (const size_t item : {size_t{2}, size_t{4}}) {
      for (const Kernel& kernel : tools::gpt2_124m_step(batch, item)) {
        const auto exception = exceptions.find(kernel.name);
        const bool named = exception != exceptions.end();
        double worst = 0;
        for (const int threads : kernels::plan::even_threads) {
          worst = std::max(worst, tools::busiest_share(kernel, threads));
        }
        EXPECT_LE(worst, named ? exception->second : kernels::plan::even_share)
            << kernel.name << " at " << batch << " × 1,024, elements of " << item << " bytes";
        if (named) {
          EXPECT_GT(worst, kernels::plan::even_share) << kernel.name << " is no exception";
        }
      }
    }
  }
}

TEST(Balance, BusiestFollowsThePoolsDealing) {
  const auto equal = [](int64_t) { return 1.0; };
  const auto falling = [](int64_t task) { return task < 2 ? 4.0 : 1.0; };
  using Deal = ThreadPool::Deal;
  EXPECT_EQ(tools::busiest(Phase{16, equal, Deal::shares}, 64), 1);
  EXPECT_EQ(tools::busiest(Phase{12, equal, Deal::shares}, 8), 2);
  EXPECT_EQ(tools::busiest(Phase{12, equal, Deal::in_order}, 8), 2);
  // Two tasks of 4 and four of 1: dealt in order they end together, by shares the first worker has
  // both long ones until the other helps.
  EXPECT_EQ(tools::busiest(Phase{6, falling, Deal::in_order}, 2), 6);
  EXPECT_EQ(tools::busiest(Phase{6, falling, Deal::shares}, 2), 7);
  const Kernel two{"", {Phase{3, equal, Deal::shares}, Phase{1, equal, Deal::shares}}};
  EXPECT_DOUBLE_EQ(tools::busiest_share(two, 2), 1.5);
}

// The chunks cover all items, and none is larger than asked for.
TEST(Balance, ChunksCoverEverything) {
  for (const int64_t step : {1, 16, 1024}) {
    for (const int64_t most : {step, 3 * step, 16 * step}) {
      for (int64_t n = 0; n < 200 * step; n += step == 1 ? 1 : step / 2 + 3) {
        const kernels::plan::Chunks c = kernels::plan::even_chunks(n, most, step);
        EXPECT_LE(c.each, most);
        EXPECT_EQ(c.each % step, 0);
        int64_t sum = 0;
        for (int64_t i = 0; i < c.count(); ++i) {
          EXPECT_GT(c.size(i), 0);
          sum += c.size(i);
        }
        EXPECT_EQ(sum, n) << "most " << most << ", step " << step;
      }
    }
  }
}

// Groups of keys follow each other without a gap, each with some, for any number of heads and
// lengths.
TEST(Balance, GroupsOfKeysCoverThem) {
  for (const bool causal : {false, true}) {
    for (const int64_t heads : {1, 2, 5, 12, 25, 48, 64}) {
      for (const int64_t t : {1, 600, 1024, 1500}) {
        for (const int64_t s : {1, 640, 1024, 2000}) {
          const kernels::plan::Heads h{heads, t, s, 64, causal};
          const auto groups = kernels::plan::key_groups(h);
          EXPECT_EQ(groups.count, kernels::plan::key_group_count(h));
          EXPECT_EQ(groups.begin[0], 0);
          EXPECT_EQ(groups.begin[groups.count], s);
          for (int64_t g = 0; g < groups.count; ++g) {
            EXPECT_LT(groups.begin[g], groups.begin[g + 1])
                << heads << " heads, t " << t << ", s " << s;
          }
        }
      }
    }
  }
}

}  // namespace

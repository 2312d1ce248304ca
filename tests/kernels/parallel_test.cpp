// The thread pool: every task runs once, under a worker's number of its own, whatever the number of
// threads.
#include "kernels/cpu/runtime/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

using sg::StreamHandle;
using sg::kernels::parallel_chunks;
using sg::kernels::parallel_for;
using sg::kernels::ThreadPool;

class ParallelTest : public testing::TestWithParam<int> {
 protected:
  ThreadPool pool_{GetParam()};
  StreamHandle stream_{.raw = &pool_};
};

TEST_P(ParallelTest, RunsEachTaskOnce) {
  for (int64_t count : {0, 1, 2, 7, 1000}) {
    std::vector<int> runs(static_cast<size_t>(count));
    parallel_for(stream_, count, [&](int64_t i, int) { ++runs[static_cast<size_t>(i)]; });
    EXPECT_EQ(runs, std::vector<int>(static_cast<size_t>(count), 1));
  }
}

TEST_P(ParallelTest, WorkersOfOneRunNeverShareANumber) {
  std::vector<std::atomic<int>> inside(static_cast<size_t>(pool_.threads()));
  std::atomic<bool> shared = false;
  parallel_for(stream_, 500, [&](int64_t, int worker) {
    if (inside[static_cast<size_t>(worker)].fetch_add(1) != 0)
      shared = true;
    std::this_thread::yield();
    inside[static_cast<size_t>(worker)].fetch_sub(1);
  });
  EXPECT_FALSE(shared);
}

TEST_P(ParallelTest, ResultsOfARunAreSeenByTheNext) {
  std::vector<int64_t> values(64, 0);
  for (int run = 0; run < 300; ++run) {
    parallel_for(stream_, 64, [&](int64_t i, int) { values[static_cast<size_t>(i)] += i; });
    parallel_for(
        stream_, 64, [&](int64_t i, int) { values[static_cast<size_t>(63 - i)] -= 63 - i; });
  }
  EXPECT_EQ(values, std::vector<int64_t>(64, 0));
}

TEST_P(ParallelTest, ARunInsideATaskExecutesInlineUnderTheSameWorker) {
  std::atomic<int> total = 0;
  std::atomic<bool> same = true;
  parallel_for(stream_, 8, [&](int64_t, int outer) {
    parallel_for(stream_, 5, [&](int64_t, int inner) {
      if (inner != outer)
        same = false;
      ++total;
    });
  });
  EXPECT_EQ(total, 40);
  EXPECT_TRUE(same);
}

TEST_P(ParallelTest, RunsFromSeveralThreadsTakeTurns) {
  std::atomic<int64_t> sum = 0;
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 3; ++caller)
    callers.emplace_back([&] {
      for (int run = 0; run < 50; ++run)
        parallel_for(stream_, 10, [&](int64_t i, int) { sum += i; });
    });
  for (std::thread& caller : callers)
    caller.join();
  EXPECT_EQ(sum, 3 * 50 * 45);
}

TEST_P(ParallelTest, SleepingWorkersWakeForTheNextRun) {
  for (int run = 0; run < 3; ++run) {
    std::this_thread::sleep_for(
        std::chrono::milliseconds(5));  // far beyond the time that workers spin
    std::atomic<int> done = 0;
    parallel_for(stream_, 100, [&](int64_t, int) { ++done; });
    EXPECT_EQ(done, 100);
  }
}

TEST_P(ParallelTest, ChunksCoverTheRangeWithoutOverlap) {
  std::vector<int> covered(1003);
  parallel_chunks(stream_, 1003, 100, [&](int64_t begin, int64_t end, int) {
    EXPECT_EQ(begin % 100, 0);
    for (int64_t i = begin; i < end; ++i)
      ++covered[static_cast<size_t>(i)];
  });
  EXPECT_EQ(covered, std::vector<int>(1003, 1));
}

TEST_P(ParallelTest, ATasksExceptionComesOutOnceEveryWorkerHasLeft) {
  for (int64_t thrower : {0, 1, 37, 99}) {
    std::atomic<int> inside = 0, ran = 0;
    std::string caught;
    try {
      parallel_for(stream_, 100, [&](int64_t i, int) {
        ++inside;
        std::this_thread::yield();
        --inside;
        if (i == thrower)
          throw std::runtime_error("task failed");
        ++ran;
      });
    } catch (const std::runtime_error& e) {
      caught = e.what();
    }
    EXPECT_EQ(caught, "task failed") << thrower;
    EXPECT_EQ(inside, 0);
    EXPECT_LT(ran, 100);
    std::atomic<int64_t> sum = 0;  // the pool goes on
    parallel_for(stream_, 100, [&](int64_t i, int) { sum += i; });
    EXPECT_EQ(sum, 4950);
  }
}

INSTANTIATE_TEST_SUITE_P(Threads, ParallelTest, testing::Values(1, 2, 3, 8));

}  // namespace

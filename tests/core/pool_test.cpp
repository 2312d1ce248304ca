#include "core/pool.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "core/device.h"
#include "core/error.h"

namespace sg {
namespace {

constexpr uint64_t MiB = uint64_t{1} << 20;

TEST(Pool, BooksWhatIsAskedForByCategory) {
  Pool pool(cpu(40), backend(cpu(40)));
  void* a = pool.allocate(100, Category::parameters);
  void* b = pool.allocate(3 * MiB, Category::gradients);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a) % 64, 0u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(b) % 64, 0u);
  EXPECT_EQ(pool.ledger().held(Category::parameters), 100u);
  EXPECT_EQ(pool.ledger().held(Category::gradients), 3 * MiB);
  pool.free(b, 3 * MiB, Category::gradients);
  EXPECT_EQ(pool.ledger().held(Category::gradients), 0u);
  EXPECT_EQ(pool.ledger().peak(Category::gradients), 3 * MiB);
  EXPECT_EQ(pool.ledger().total(), 100u);
  EXPECT_EQ(pool.ledger().total_peak(), 100 + 3 * MiB);
  pool.free(a, 100, Category::parameters);
}

TEST(Pool, TotalPeakIsThePeakOfTheSum) {
  Pool pool(meta(40), backend(meta(40)));
  pool.allocate(10, Category::live);
  pool.free(nullptr, 10, Category::live);
  pool.allocate(10, Category::data);
  EXPECT_EQ(pool.ledger().total_peak(), 10u);
}

TEST(Pool, ExactCapacityFitsAndOneByteMoreNamesEverything) {
  Pool pool(cpu(40), backend(cpu(40)), 4 * MiB);
  void* held = pool.allocate(3 * MiB, Category::optimizer);
  void* rest = pool.allocate(MiB, Category::activations);
  pool.free(rest, MiB, Category::activations);
  try {
    pool.allocate(MiB + 1, Category::activations);
    FAIL() << "must not fit";
  } catch (const Error& e) {
    EXPECT_EQ(e.exit_code(), 6);
    for (const char* part :
         {"cpu:40", "1.00 MiB", "activations", "optimizer 3.00 MiB", "4.00 MiB"}) {
      EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << part << " in " << e.what();
    }
  }
  rest = pool.allocate(MiB, Category::activations);  // usable after the catch
  EXPECT_NE(rest, nullptr);
  pool.free(rest, MiB, Category::activations);
  pool.free(held, 3 * MiB, Category::optimizer);
}

TEST(Pool, SizesThatOverflowAreRefused) {
  Pool pool(cpu(40), backend(cpu(40)), 4 * MiB);
  void* held = pool.allocate(MiB, Category::data);
  EXPECT_THROW(pool.allocate(~uint64_t{0} - 5, Category::data), Error);
  pool.free(held, MiB, Category::data);
}

TEST(Pool, MoreReturnedThanHeldIsABug) {
  Pool pool(meta(40), backend(meta(40)));
  EXPECT_THROW(pool.free(nullptr, 1, Category::data), Bug);
}

TEST(Pool, TrimGivesCachedBlocksBack) {
  Pool pool(cpu(40), backend(cpu(40)));
  pool.free(pool.allocate(8 * MiB, Category::data), 8 * MiB, Category::data);
  pool.trim();
  EXPECT_EQ(pool.cached_bytes(), 0u);
}

TEST(Pool, MetaCountsAndNeverBacks) {
  Pool pool(meta(40), backend(meta(40)));
  EXPECT_EQ(pool.allocate(uint64_t{1} << 50, Category::parameters), nullptr);
  EXPECT_EQ(pool.ledger().total(), uint64_t{1} << 50);
}

TEST(Pool, ThreadsShareIt) {
  Pool pool(cpu(40), backend(cpu(40)));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&pool, t] {
      for (uint64_t i = 1; i < 300; ++i) {
        const uint64_t bytes = i * 97 + static_cast<uint64_t>(t);
        auto* block = static_cast<char*>(pool.allocate(bytes, Category::workspace));
        block[0] = block[bytes - 1] = static_cast<char>(t);
        pool.free(block, bytes, Category::workspace);
      }
    });
  }
  for (auto& thread : threads)
    thread.join();
  EXPECT_EQ(pool.ledger().total(), 0u);
}

}  // namespace
}  // namespace sg

#include "core/stream.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "core/device.h"
#include "core/error.h"
#include "core/storage.h"

namespace sg {
namespace {

TEST(Stream, RunsInOrderOnAThreadOfItsOwn) {
  Stream stream(cpu(0), "test");
  std::vector<int> order;
  std::thread::id worker;
  for (int i = 0; i < 100; ++i) {
    stream.enqueue("task", [&, i] {
      order.push_back(i);
      worker = std::this_thread::get_id();
    });
  }
  stream.synchronize();
  for (int i = 0; i < 100; ++i)
    EXPECT_EQ(order[static_cast<size_t>(i)], i);
  EXPECT_NE(worker, std::this_thread::get_id());
}

TEST(Stream, ComputeRunsInline) {
  Stream stream = Stream::compute(cpu(0));
  std::thread::id worker;
  stream.enqueue("task", [&] { worker = std::this_thread::get_id(); });
  EXPECT_EQ(worker, std::this_thread::get_id());
  EXPECT_TRUE(stream.record().done());
  EXPECT_THROW(stream.enqueue("task", [] { throw std::runtime_error("now"); }), std::runtime_error);
  stream.enqueue("task", [&] { worker = {}; });  // an inline stream has told its error and goes on
  EXPECT_EQ(worker, std::thread::id());
}

TEST(Stream, WaitsForAnotherStreamsEvent) {
  Stream first(cpu(0), "first"), second(cpu(0), "second");
  std::atomic<int> value{0};
  int seen = -1;
  first.enqueue("slow", [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    value = 7;
  });
  second.wait(first.record());
  second.enqueue("read", [&] { seen = value; });
  second.synchronize();
  EXPECT_EQ(seen, 7);
}

TEST(Stream, TellsItsErrorAtEveryWaitAndDropsWhatComesBehind) {
  Stream stream(cpu(0), "failing"), other(cpu(0), "other");
  bool ran = false;
  stream.enqueue("fails", [] { throw std::runtime_error("broken link"); });
  const Event e = stream.record();
  stream.enqueue("never", [&] { ran = true; });
  EXPECT_THROW(e.wait(), std::runtime_error);
  EXPECT_THROW(stream.synchronize(), std::runtime_error);
  EXPECT_FALSE(ran);
  other.wait(e);
  EXPECT_THROW(other.synchronize(), std::runtime_error);
}

TEST(Stream, DestructionDrainsTheQueue) {
  std::atomic<int> count{0};
  {
    Stream stream(cpu(0), "short");
    for (int i = 0; i < 50; ++i)
      stream.enqueue("task", [&] { ++count; });
  }
  EXPECT_EQ(count, 50);
}

TEST(Stream, ATasksCapturesAreGoneBeforeItsEventPasses) {
  auto kept = std::make_shared<int>(1);
  Stream stream(cpu(0), "captures");
  stream.enqueue("task", [kept] {});
  stream.record().wait();
  EXPECT_EQ(kept.use_count(), 1);
}

class LazyStream : public testing::TestWithParam<int> {
 protected:
  void SetUp() override { set_lazy_streams(true, static_cast<uint64_t>(GetParam())); }
  void TearDown() override { set_lazy_streams(false); }
};

TEST_P(LazyStream, AMissingWaitShowsAsStaleData) {
  Stream stream(cpu(1), "lazy");
  int value = 0;
  stream.enqueue("write", [&] { value = 1; });
  EXPECT_EQ(value, 0);  // nobody waited
  stream.synchronize();
  EXPECT_EQ(value, 1);
}

TEST_P(LazyStream, GatesAreKept) {
  Stream a(cpu(1), "a"), b(cpu(1), "b"), c(cpu(1), "c");
  std::vector<int> order;
  a.enqueue("1", [&] { order.push_back(1); });
  b.wait(a.record());
  b.enqueue("2", [&] { order.push_back(2); });
  c.wait(b.record());
  c.enqueue("3", [&] { order.push_back(3); });
  c.synchronize();
  EXPECT_EQ(order, (std::vector<int>{1, 2, 3}));
}
INSTANTIATE_TEST_SUITE_P(Seeds, LazyStream, testing::Range(0, 8));

TEST(Storage, AFailedUseDoesntKeepItsMemory) {
  const Device device = cpu(40);
  Stream stream(device, "test");
  {
    Storage storage(device, 64, Category::activations), kept(device, 64, Category::activations);
    stream.enqueue("use", [] { throw std::runtime_error("failed"); });
    for (Storage* used : {&storage, &kept})
      used->used_until(stream.record());
    storage.release();
    EXPECT_FALSE(storage.resident());
    EXPECT_EQ(pool(device).ledger().total(), 64u);
    storage.acquire();
    EXPECT_EQ(pool(device).ledger().total(), 128u);
  }  // destroyed while its use has failed
  EXPECT_EQ(pool(device).ledger().total(), 0u);
  EXPECT_THROW(stream.synchronize(), std::runtime_error);
}

TEST(Storage, ResidencyIsCountedAndRefillingIsNoInPlaceChange) {
  const uint64_t before = pool(cpu(41)).ledger().held(Category::live);
  Storage storage(cpu(41), 1000, Category::live, Storage::Start::empty, "block.7");
  EXPECT_EQ(pool(cpu(41)).ledger().held(Category::live), before);
  storage.acquire();
  storage.acquire();
  storage.release();
  EXPECT_NO_THROW(storage.data());
  storage.release();
  EXPECT_EQ(pool(cpu(41)).ledger().held(Category::live), before);
  EXPECT_EQ(storage.version(), 0u);
  try {
    storage.data();
    FAIL() << "an empty slot has no data";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("block.7"), std::string::npos);
  }
  EXPECT_THROW(storage.release(), Bug);
}

TEST(Stream, TheLastHandleMayBeOneThatATaskHolds) {
  std::atomic<int> ran{0};
  for (int i = 0; i < 50; ++i) {
    Stream stream(cpu(), "test");
    stream.enqueue("first", [copy = stream, &ran] {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      ++ran;
    });
    stream.enqueue("second", [&ran] { ++ran; });
  }  // the handle here is gone while the first task runs
  for (int waited = 0; ran < 100 && waited < 5000; ++waited)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(ran, 100);
}

}  // namespace
}  // namespace sg

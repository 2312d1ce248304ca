// What every backend owes to core, on the devices that this build fills; what it refuses.
#include "core/backend.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "core/copies.h"
#include "core/device.h"
#include "core/ops.h"

namespace sg {
namespace {

constexpr Device cuda(int index) {
  return {DeviceType::cuda, index};
}

TEST(Devices, EverySimulatedDeviceHasAHostOfItsOwn) {
  for (int i = 0; i < max_devices; ++i) {
    const Device beside = host_of(meta(i));
    EXPECT_EQ(to_string(beside), "host of meta:" + std::to_string(i));
    EXPECT_EQ(empty({2}, DType::f32, beside).device(), beside);
    const bool apart = beside != unplaced && beside.index >= max_devices;
    EXPECT_TRUE(apart) << beside.index;
  }
  EXPECT_EQ(host_of(cpu(3)), host);
}

TEST(Backend, MemoryOfADeviceThatCantBeHadIsRefusedByName) {
  const std::vector<std::pair<const char*, std::function<void()>>> uses = {
      {"empty", [] { empty({4}, DType::f32, cuda(3)); }},
      {"current device",
       [] {
         const DeviceGuard guard(cuda(3));
         zeros({4});
       }},
      {"to", [] { to(full({4}, 1), cuda(3)); }},
      {"stream", [] { Stream(cuda(3), "comm"); }},
      {"compute stream", [] { Stream::compute(cuda(3)); }},
      {"pool", [] { pool(cuda(3)); }},
      {"configure", [] { configure(cuda(3), {.capacity = 1 << 20}); }},
  };
  for (const auto& [name, use] : uses) {
    try {
      use();
      ADD_FAILURE() << name << ": was given something";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage) << name;
      EXPECT_NE(std::string(error.what()).find("cuda:3: this build has no CUDA memory"),
                std::string::npos)
          << name << ": " << error.what();
    }
  }
  EXPECT_EQ(full({1}, 2).item<float>(), 2);  // nothing stays behind
}

TEST(Backend, BlocksAreAlignedAndBackedButOnMeta) {
  for (const Device device : {cpu(0), cpu(7), host}) {
    Backend& b = backend(device);
    EXPECT_TRUE(b.backed());
    for (const uint64_t bytes : {uint64_t{64}, uint64_t{4096}, uint64_t{3} << 20}) {
      auto* block = static_cast<char*>(b.allocate(bytes));
      ASSERT_NE(block, nullptr);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % 64, 0u);
      block[0] = block[bytes - 1] = 1;
      b.free(block, bytes);
    }
  }
  EXPECT_FALSE(backend(meta(0)).backed());
  EXPECT_EQ(backend(meta(0)).allocate(64), nullptr);
}

TEST(Backend, CopiesBetweenDevicesKeepValues) {
  std::vector<float> values(3 * 70'000);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(i) * 0.25f;
  const Tensor x = from_vector(values, {3, 70'000});
  for (const Device first : {cpu(1), host, cpu(0)}) {
    for (const Device second : {cpu(2), host, cpu(0)}) {
      const Tensor dense = to(to(x, first), second);
      EXPECT_EQ(dense.device(), second);
      EXPECT_EQ(dense.to_vector<float>(), values);
      const Tensor there = to(x, first).transposed();
      EXPECT_EQ(to(there, second).transposed().to_vector<float>(), values);
      Tensor wide = empty({3, 70'000}, DType::f64, second);
      copy_(wide, to(x, first));
      EXPECT_EQ(wide.select(1, 5).to_vector<double>(),
                (std::vector<double>{1.25, 17'501.25, 35'001.25}));
    }
  }
}

TEST(Backend, TheCopyOfBytesRunsInAStreamsOrder) {
  const Tensor from = full({1000}, 3), into = zeros({1000});
  Stream stream(cpu(0), "copies");
  stream.enqueue("copy", [&] {
    Backend& b = backend(cpu(0));
    b.copy(into.data<float>(), from.data<float>(), into.bytes(), b.handle());
  });
  stream.record().wait();
  EXPECT_EQ(into.to_vector<float>(), from.to_vector<float>());
}

// A stream that is held up until the test lets it go on.
struct HeldStream {
  std::atomic<bool> held{true};
  Stream stream{cpu(0), "held"};
  HeldStream() {
    stream.enqueue("hold", [this] {
      while (held)
        std::this_thread::yield();
    });
  }
  ~HeldStream() { held = false; }
  void release() {
    held = false;
    stream.synchronize();
  }
};

TEST(Pool, ABlockIsNotHandedOutWhileAStreamUsesIt) {
  Pool pool(cpu(42), backend(cpu(42)));
  HeldStream user;
  void* const block = pool.allocate(4096, Category::live);
  pool.free(block, 4096, Category::live, {user.stream.record()});
  EXPECT_EQ(pool.ledger().total(), 0u);  // the books don't wait
  ASSERT_EQ(pool.cached_bytes(), 0u);    // it is nobody's yet
  void* const other = pool.allocate(4096, Category::live);
  ASSERT_NE(other, block);
  pool.trim();
  static_cast<char*>(block)[0] = 1;  // still there
  user.release();
  pool.free(other, 4096, Category::live);
#if !defined(__SANITIZE_ADDRESS__)
  pool.trim();  // gives `other` back, and `block`, which is free now
  EXPECT_EQ(pool.cached_bytes(), 0u);
  void* const third = pool.allocate(4096, Category::live);
  const Event passed = user.stream.record();
  passed.wait();
  pool.free(third, 4096, Category::live, {passed});
  EXPECT_EQ(pool.cached_bytes(), 4096u);  // an event that has passed holds nothing up
#endif
}

TEST(Storage, WhatAStreamStillUsesGoesToNobodyElseAndReleaseDoesntWait) {
  const Device device = cpu(43);
  HeldStream user;
  auto storage = std::make_unique<Storage>(device, 8192, Category::live);
  void* const block = storage->data();
  storage->used_until(user.stream.record());
  storage->release();
  storage->acquire();
  EXPECT_NE(storage->data(), block);
  storage = nullptr;
  const Storage next(device, 8192, Category::live);
  EXPECT_NE(next.data(), block);
  user.release();
}

TEST(Storage, AStreamThatFailedHoldsNothingUp) {
  Stream failing(cpu(0), "failing");
  failing.enqueue("fails", [] { throw std::runtime_error("broken link"); });
  Storage storage(cpu(44), 512, Category::live);
  const Event event = failing.record();
  storage.used_until(event);
  event.settle();
  EXPECT_NO_THROW(storage.release());
  EXPECT_NO_THROW(storage.acquire());
}

}  // namespace
}  // namespace sg

// Queues of the software device: what must hold for correct programs, and what shows that a program
// is not.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/cuda_sim/planted.h"
#include "tests/cuda_sim/software_device.h"

namespace {

using simt::Planted, simt::Streams;

constexpr int64_t n = 64;
constexpr size_t bytes = n * sizeof(int);

// A producer stream uploads, a consumer stream adds one to each element and downloads.
struct Pipeline {
  int *device = nullptr, *in = nullptr, *out = nullptr;  // in, out are pinned
  cudaStream_t producer = nullptr, consumer = nullptr;
  cudaEvent_t uploaded = nullptr;

  explicit Pipeline(const simt::Options& options) {
    simt::reset(options);
    EXPECT_EQ(cudaMalloc(reinterpret_cast<void**>(&device), bytes), cudaSuccess);
    EXPECT_EQ(cudaMallocHost(reinterpret_cast<void**>(&in), bytes), cudaSuccess);
    EXPECT_EQ(cudaMallocHost(reinterpret_cast<void**>(&out), bytes), cudaSuccess);
    EXPECT_EQ(cudaStreamCreateWithFlags(&producer, cudaStreamNonBlocking), cudaSuccess);
    EXPECT_EQ(cudaStreamCreateWithFlags(&consumer, cudaStreamNonBlocking), cudaSuccess);
    EXPECT_EQ(cudaEventCreateWithFlags(&uploaded, cudaEventDisableTiming), cudaSuccess);
    EXPECT_EQ(cudaMemset(device, 0, bytes), cudaSuccess);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    for (int i = 0; i < n; ++i)
      in[i] = 10 * i;
  }
  void upload() {
    EXPECT_EQ(cudaMemcpyAsync(device, in, bytes, cudaMemcpyHostToDevice, producer), cudaSuccess);
  }
  void wait_for_upload() {
    EXPECT_EQ(cudaEventRecord(uploaded, producer), cudaSuccess);
    EXPECT_EQ(cudaStreamWaitEvent(consumer, uploaded, 0), cudaSuccess);
  }
  void compute_and_download() {
    simt::run_planted(Planted::none, Planted::none, device, n, consumer);
    EXPECT_EQ(cudaMemcpyAsync(out, device, bytes, cudaMemcpyDeviceToHost, consumer), cudaSuccess);
  }
  void finish() { EXPECT_EQ(cudaStreamSynchronize(consumer), cudaSuccess); }
  bool right() const {
    for (int i = 0; i < n; ++i)
      if (out[i] != 10 * i + 1)
        return false;
    return simt::take_faults().empty();
  }
};

constexpr int seeds = 20;
// In how many of the seeds `program` gives a wrong result.
template <class F>
int wrong_results(F program) {
  int wrong = 0;
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    Pipeline p({.seed = seed});
    program(p);
    wrong += !p.right();
  }
  return wrong;
}

TEST(SimStreams, CorrectProgramIsRightInEverySeed) {
  EXPECT_EQ(wrong_results([](Pipeline& p) {
              p.upload();
              p.wait_for_upload();
              p.compute_and_download();
              p.finish();
            }),
            0);
}

TEST(SimStreams, EagerStreamsRunAtOnce) {
  Pipeline p({.streams = Streams::eager});
  p.upload();
  p.compute_and_download();
  EXPECT_TRUE(p.right());
}

TEST(SimStreams, MissingEventWaitShows) {
  EXPECT_GT(wrong_results([](Pipeline& p) {
              p.upload();
              p.compute_and_download();
              p.finish();
            }),
            seeds / 4);
}

TEST(SimStreams, MissingSynchronizeShows) {
  EXPECT_EQ(wrong_results([](Pipeline& p) {
              p.upload();
              p.wait_for_upload();
              p.compute_and_download();
            }),
            seeds);
}

TEST(SimStreams, EarlyReuseOfPinnedBufferShows) {
  EXPECT_GT(wrong_results([](Pipeline& p) {
              p.upload();
              for (int i = 0; i < n; ++i)
                p.in[i] = -1;
              p.wait_for_upload();
              p.compute_and_download();
              p.finish();
            }),
            seeds / 2);
}

// As CUDA does, pageable memory has been read when the call returns.
TEST(SimStreams, PageableBufferMayBeReused) {
  EXPECT_EQ(wrong_results([](Pipeline& p) {
              std::vector<int> pageable(p.in, p.in + n);
              EXPECT_EQ(cudaMemcpyAsync(
                            p.device, pageable.data(), bytes, cudaMemcpyHostToDevice, p.producer),
                        cudaSuccess);
              pageable.assign(n, -1);
              p.wait_for_upload();
              p.compute_and_download();
              p.finish();
            }),
            0);
}

TEST(SimStreams, EventsAreReachedInOrder) {
  Pipeline p({});
  p.upload();
  EXPECT_EQ(cudaEventRecord(p.uploaded, p.producer), cudaSuccess);
  EXPECT_EQ(cudaEventSynchronize(p.uploaded), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(p.uploaded), cudaSuccess);
  p.compute_and_download();
  while (cudaStreamQuery(p.consumer) == cudaErrorNotReady)
    continue;  // who polls sees progress
  EXPECT_TRUE(p.right());
}

TEST(SimMemory, CapacityIsKept) {
  simt::reset({.capacity = 4096});
  void *a = nullptr, *b = nullptr;
  EXPECT_EQ(cudaMalloc(&a, 3000), cudaSuccess);
  EXPECT_EQ(cudaMalloc(&b, 3000), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaSetDevice(1), cudaSuccess);
  EXPECT_EQ(cudaMalloc(&b, 3000), cudaSuccess) << "each device has its own";
  EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
  EXPECT_EQ(cudaFree(a), cudaSuccess);
  EXPECT_EQ(cudaMalloc(&a, 3000), cudaSuccess);
}

TEST(SimMemory, WrongCopiesAreRefused) {
  Pipeline p({});
  EXPECT_EQ(cudaMemcpyAsync(p.device, p.in, bytes + 4, cudaMemcpyHostToDevice, p.producer),
            cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpyAsync(p.out, p.in, bytes, cudaMemcpyDeviceToHost, p.producer),
            cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(p.in), cudaErrorInvalidValue);
}

TEST(SimMemory, UseAfterFreeShows) {
  if (!simt::checks_accesses())
    GTEST_SKIP() << "this build does not watch accesses";
  Pipeline p({});
  EXPECT_EQ(cudaFree(p.device), cudaSuccess);
  simt::run_planted(Planted::none, Planted::none, p.device, n);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
  const auto faults = simt::take_faults();
  ASSERT_FALSE(faults.empty());
  EXPECT_NE(faults[0].find("outside any allocation"), std::string::npos) << faults[0];
}

TEST(SimLaunch, ImpossibleShapesAreRefused) {
  simt::reset({});
  EXPECT_THROW(simt::run_planted(Planted::none, Planted::none, nullptr, 0), std::runtime_error)
      << "an empty grid";
}

}  // namespace

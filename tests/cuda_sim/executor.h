// Runs the blocks of a grid: one fiber per CUDA thread that is between its start and its end.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>
#include <functional>
#include <source_location>

#include "tests/cuda_sim/software_device.h"

// What kernels see; plain variables, as only one thread runs at a time.
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;

namespace simt {

class Fiber;

// What threads can wait for together; those that meet must have called the same.
enum class Meeting : uint8_t { sync, count, shuffle, ballot };

// One CUDA thread of the running block.
struct Thread {
  enum class State : uint8_t { unstarted, ready, at_barrier, in_warp, finished };
  uint3 index{};
  uint32_t linear = 0;
  State state = State::unstarted;
  Meeting meeting{};
  uint32_t mask = 0;        // lanes that take part in the warp operation it waits in
  void* payload = nullptr;  // this lane's operands and result there
  std::source_location where;
  Fiber* fiber = nullptr;
};

extern Thread* current;        // null outside kernels
extern uint32_t block_number;  // blockIdx as one number

// Returns once every thread of the block has arrived: how many gave a true vote.
int block_barrier(Meeting, bool vote, std::source_location);

// The lane of `mask` that arrives last computes the operation for all: compute(payloads by lane,
// mask).
void warp_operation(Meeting,
                    uint32_t mask,
                    void* payload,
                    void (*compute)(void** payloads, uint32_t mask),
                    std::source_location);

// Ends the kernel with this fault. Doesn't return.
[[noreturn]] void device_trap(const char* fault, std::source_location);

void* dynamic_shared();  // as many bytes as the launch asked for

struct Grid {
  dim3 grid, block;
  size_t shared_bytes = 0;
};
// Calls `thread` once per CUDA thread. A fault ends the grid and has been reported.
void run_grid(const Grid&, const std::function<void()>& thread);

// cudaLaunchKernelEx behind its types: queues the grid on config.stream (streams.cpp).
cudaError_t launch(const cudaLaunchConfig_t& config, std::function<void()> thread);

// cudaFuncAttributeMaxDynamicSharedMemorySize of the next launch.
cudaError_t allow_shared_memory(int bytes);

void set_executor_options(const Options&);

}  // namespace simt

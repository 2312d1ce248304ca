// Watches every access of kernels that were compiled with -fsanitize=thread: race.cpp is the
// run-time library of that instrumentation in ThreadSanitizer's place, and knows CUDA's threads,
// barriers and memory.
#pragma once
#include <cstddef>
#include <cstdint>

namespace simt::race {

// All device and shared memory lies in this range; other addresses are the host's or a thread's own
// stack.
void watch(char* begin, size_t bytes);

void allocated(void* memory, size_t bytes);      // exists, unwritten
void written(const void* memory, size_t bytes);  // by a copy or a memset
void freed(void* memory, size_t bytes);

// Accesses that kernels report themselves: at most 8 bytes, or 16. A misaligned address is a fault.
struct Sixteen {
  uint64_t low, high;
};
uint64_t load(const void* from, size_t bytes);
Sixteen load16(const void* from);
void store(void* to, uint64_t bits, size_t bytes);
void store16(void* to, Sixteen bits);

void kernel_begins();
void block_begins();
void block_barrier();              // orders the block's threads
void warp_barrier(uint32_t warp);  // orders the warp's lanes
void fence();  // what this thread's block wrote until its last barrier is published

}  // namespace simt::race

// Device, shared and pinned memory of the software device.
#pragma once
#include <cstddef>

namespace simt {

// Device memory is closed to the host (a touch ends in SIGSEGV) but for the time in which this
// lives.
class OpenDeviceMemory {
 public:
  OpenDeviceMemory();
  ~OpenDeviceMemory();
  OpenDeviceMemory(const OpenDeviceMemory&) = delete;
};

// Shared memory: arrays come to be when a kernel first names them by `key`, are unwritten whenever
// a block begins, and end with the kernel.
void* shared_array(const void* key, size_t bytes, size_t alignment);
void begin_shared_memory();
void end_shared_memory();

enum class Place { pageable, pinned, device };
Place place_of(const void* p);
// Whether `bytes` from p stay within its allocation; true for pageable memory.
bool within_allocation(const void* p, size_t bytes);

void reset_memory(size_t capacity, int devices);

}  // namespace simt

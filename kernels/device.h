// Devices, and what a kernel is handed to run with: a stream handle and scratch memory that its
// caller allocated.
#pragma once
#include <cstddef>
#include <cstdint>

namespace sg {

// cpu and cuda compute; host is memory outside any device's pool; meta counts bytes and never backs
// them.
enum class DeviceType : uint8_t { cpu, cuda, host, meta };

struct Device {
  DeviceType type = DeviceType::cpu;
  int index = 0;
  friend constexpr bool operator==(const Device&, const Device&) = default;
};

// cpu: a kernels::ThreadPool* (null runs on the calling thread alone); cuda: a cudaStream_t.
struct StreamHandle {
  void* raw = nullptr;
};

// Scratch memory, 64-byte aligned, at least as large as the matching *_workspace entry asked for.
struct Workspace {
  void* data = nullptr;
  size_t bytes = 0;
};

}  // namespace sg

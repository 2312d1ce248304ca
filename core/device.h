// The devices of this process and what belongs to each: a backend (backend.h) and a pool.
#pragma once
#include <fmt/format.h>

#include <cstdint>
#include <string>

#include "core/backend.h"
#include "core/pool.h"
#include "core/shape.h"
#include "kernels/device.h"
#include "kernels/table.h"

namespace sg {

inline constexpr int max_devices = 64;  // indices of cpu and meta devices: 0 … 63

inline constexpr Device cpu(int index = 0) {
  return {DeviceType::cpu, index};
}
inline constexpr Device meta(int index = 0) {
  return {DeviceType::meta, index};
}
inline constexpr Device host{DeviceType::host, 0};
// For models that an engine will place: nobody reads its books.
inline constexpr Device unplaced = meta(max_devices);
// The host beside meta:index, simulated as it is: every one has its own.
inline constexpr Device simulated_host(int index) {
  return meta(max_devices + 1 + index);
}

std::string to_string(Device device);          // "cpu:0", "host"
Device parse_device(const std::string& text);  // the reverse; anything else is a usage error

// Sets up a device before its first use; later only what may change: capacity, and the threads that
// meta plans for.
struct DeviceOptions {
  uint64_t capacity = Pool::unlimited;
  int threads = 0;  // workers of a cpu device, the calling thread included; 0: as many as the
                    // process may run on
};
void configure(Device device, const DeviceOptions& options);

Backend& backend(Device device);
Pool& pool(Device device);
const KernelTable& kernel_table(
    Device device);  // meta answers with the CPU table, whose workspaces it plans
StreamHandle stream_handle(
    Device device);  // what kernels that this thread issues run with (Backend::handle)
int threads(Device device);
int available_processors();  // the process's affinity mask

// Where tensors are created unless a device is given; per thread, cpu:0 at first.
Device current_device();
class DeviceGuard {
 public:
  explicit DeviceGuard(Device device);
  ~DeviceGuard();
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  Device previous_;
};

}  // namespace sg

template <>
struct fmt::formatter<sg::Device> : fmt::formatter<std::string> {
  template <class Context>
  auto format(sg::Device device, Context& context) const {
    return fmt::formatter<std::string>::format(sg::to_string(device), context);
  }
};

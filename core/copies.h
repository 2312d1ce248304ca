// Books of what crosses between a device and the host's memory.
#pragma once
#include <cstdint>

#include "kernels/device.h"

namespace sg {

// The host's memory as this device sees it: `host`, and for a dry run's device another of its kind,
// which keeps books of its own.
Device host_of(Device device);

enum class CopyDirection : uint8_t { to_host, from_host };

struct Copies {
  uint64_t to_host = 0, from_host = 0;  // bytes
  double exposed_seconds = 0;           // that computing waited for them
};

inline Copies operator+(const Copies& a, const Copies& b) {
  return {a.to_host + b.to_host, a.from_host + b.from_host, a.exposed_seconds + b.exposed_seconds};
}
inline Copies operator-(const Copies& a, const Copies& b) {
  return {a.to_host - b.to_host, a.from_host - b.from_host, a.exposed_seconds - b.exposed_seconds};
}

// Since the process began. Thread-safe.
Copies copies(Device device);
void book_copy(Device device, CopyDirection direction, uint64_t bytes);
void book_exposed_copy(Device device, double seconds);

}  // namespace sg

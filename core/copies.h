// What crosses between a device and the host's memory: its queue and its books.
#pragma once
#include <cstdint>
#include <functional>

#include "core/stream.h"
#include "core/tensor.h"

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
void book_exposed_copy(Device device, double seconds);

// A device's queue of copies from and to its host.
class CopyStream {
 public:
  explicit CopyStream(Device device) : device_(device), stream_(device, "copies") {}

  Device device() const { return device_; }
  // out becomes in, both dense, of one dtype and size, one on the device and one on its host: once
  // what the compute stream was given so far is done, and `after` has passed. Booked. The memory of
  // both goes to nobody else before.
  Event copy(const char* name, const Tensor& out, const Tensor& in, const Event& after = {});
  // `task` runs behind the copies that were given so far.
  void then(const char* name, std::function<void()> task) { stream_.enqueue(name, task); }
  Event record() { return stream_.record(); }
  // Until it has passed; what that takes is booked as exposed.
  void wait(const Event& copied) const;

 private:
  const Device device_;
  Stream stream_;
};

}  // namespace sg

#include "core/copies.h"

#include <map>
#include <mutex>
#include <utility>

#include "core/device.h"

namespace sg {
namespace {

struct Books {
  std::mutex mutex;
  std::map<std::pair<DeviceType, int>, Copies> by_device;
};
Books& books() {
  static auto* const all = new Books;  // devices outlive every scope
  return *all;
}

template <class Change>
void change(Device device, Change&& f) {
  const std::lock_guard lock(books().mutex);
  f(books().by_device[{device.type, device.index}]);
}

}  // namespace

Device host_of(Device device) {
  return device.type == DeviceType::meta ? simulated_host(device.index) : host;
}

Copies copies(Device device) {
  Copies found;
  change(device, [&](const Copies& c) { found = c; });
  return found;
}

void book_copy(Device device, CopyDirection direction, uint64_t bytes) {
  change(device, [&](Copies& c) {
    (direction == CopyDirection::to_host ? c.to_host : c.from_host) += bytes;
  });
}

void book_exposed_copy(Device device, double seconds) {
  change(device, [&](Copies& c) { c.exposed_seconds += seconds; });
}

}  // namespace sg

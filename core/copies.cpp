#include "core/copies.h"

#include <chrono>
#include <map>
#include <mutex>
#include <utility>

#include "core/device.h"
#include "core/error.h"

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

void book_copy(Device device, CopyDirection direction, uint64_t bytes) {
  change(device, [&](Copies& c) {
    (direction == CopyDirection::to_host ? c.to_host : c.from_host) += bytes;
  });
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

void book_exposed_copy(Device device, double seconds) {
  change(device, [&](Copies& c) { c.exposed_seconds += seconds; });
}

Event CopyStream::copy(const char* name, const Tensor& out, const Tensor& in, const Event& after) {
  invariant(out.bytes() == in.bytes() && out.contiguous() && in.contiguous(),
            "{}: {} bytes into {}, both must be dense",
            name,
            in.bytes(),
            out.bytes());
  stream_.wait(Stream::compute(device_).record());
  stream_.wait(after);
  const bool down = in.device() == device_;
  book_copy(device_, down ? CopyDirection::to_host : CopyDirection::from_host, in.bytes());
  void* const to = out.view().data;
  const void* const from = in.view().data;
  // It holds no tensor: whoever drops one of them settles the books at once (used_until).
  stream_.enqueue(name, [to, from, device = device_, bytes = in.bytes()] {
    backend(device).copy(to, from, bytes, stream_handle(device));
  });
  const Event done = stream_.record();
  out.storage()->used_until(done);
  in.storage()->used_until(done);
  return done;
}

void CopyStream::wait(const Event& copied) const {
  const auto begin = std::chrono::steady_clock::now();
  copied.wait();
  const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - begin;
  book_exposed_copy(device_, waited.count());
}

}  // namespace sg

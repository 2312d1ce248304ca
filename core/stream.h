// Streams and events. A stream is an ordered queue of work on a device: on cpu:i a worker thread;
// the compute stream runs inline on the calling thread. Engines use streams and events alone and
// never ask which backend they are on.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "kernels/device.h"

namespace sg {

class EventState;  // what a device's backend makes of them (backend.h)
class StreamState;

// A point in a stream's order. Copies share it; a default-made event is done.
class Event {
 public:
  Event() = default;
  bool done() const;
  // Returns when the point is passed; rethrows the first error of its stream up to there.
  void wait() const;
  void settle() const noexcept;  // returns when the point is passed, whatever became of the stream

 private:
  friend class Stream;
  explicit Event(std::shared_ptr<EventState> state) : state_(std::move(state)) {}
  std::shared_ptr<EventState> state_;
};

// Copies share the queue. After a task throws, the tasks behind it are dropped; every wait and
// synchronize rethrows the error.
class Stream {
 public:
  Stream(Device device, const std::string& name);  // a queue of its own
  static Stream compute(Device device);  // where ops go outside of any task; on cpu inline

  // `task` runs after everything enqueued before it; ops inside it run on this stream. `name` (a
  // literal) is for traces.
  void enqueue(const char* name, std::function<void()> task);
  Event record();              // passed when everything enqueued so far is done
  void wait(const Event& e);   // what is enqueued later starts after e
  void synchronize();          // until everything enqueued is done
  bool inline_stream() const;  // work is done when enqueue returns

 private:
  explicit Stream(std::shared_ptr<StreamState> state) : state_(std::move(state)) {}
  std::shared_ptr<StreamState> state_;
};

// Test mode: queues of streams made while it is on run only when something waits for them, on the
// waiting thread, a random ready queue of the same device first (by seed); so a missing wait shows
// as stale data. Process-wide.
void set_lazy_streams(bool on, uint64_t seed = 0);

}  // namespace sg

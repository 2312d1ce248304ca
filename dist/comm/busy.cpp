// A rank that is at work on files says so, again and again, until it is done.
#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "dist/comm/comm.h"
#include "dist/comm/transport.h"

namespace sg::dist {

struct Comm::Busy::State {
  State(Comm& comm, Transport& transport, double interval) : stream(comm.stream()) {
    talker = std::thread([this, &transport, interval] {
      std::unique_lock lock(mutex);
      while (
          !changed.wait_for(lock, std::chrono::duration<double>(interval), [this] { return over; }))
        stream.enqueue("busy", [&transport] { transport.say_busy(); });
    });
  }
  ~State() {
    {
      std::lock_guard lock(mutex);
      over = true;
    }
    changed.notify_all();
    talker.join();
  }

  Stream stream;
  std::mutex mutex;
  std::condition_variable changed;
  bool over = false;
  std::thread talker;
};

// Well before those who wait are warned, and never so often that it costs.
Comm::Busy::Busy(Comm& comm) {
  if (comm.size() == 1 || !comm.transport_->moves_data())
    return;
  const double interval = std::clamp(comm.shared_->timeout / 8, 0.02, 10.0);
  state_ = std::make_unique<State>(comm, *comm.transport_, interval);
}

Comm::Busy::~Busy() = default;

}  // namespace sg::dist

#include "core/stream.h"

#include <exception>
#include <utility>

#include "core/backend.h"
#include "core/device.h"

namespace sg {

Stream::Stream(Device device, const std::string& name) : state_(backend(device).stream(name)) {}
Stream Stream::compute(Device device) {
  return Stream(backend(device).compute_stream());
}

bool Stream::inline_stream() const {
  return state_->is_inline();
}
void Stream::enqueue(const char* name, std::function<void()> task) {
  const auto state = state_;  // the task may end this handle
  state->enqueue(name, std::move(task));
}
Event Stream::record() {
  return Event(state_->record());
}
void Stream::wait(const Event& e) {
  if (e.state_)
    state_->wait(e.state_);
}
void Stream::synchronize() {
  record().wait();
}

bool Event::done() const {
  return !state_ || state_->done();
}

void Event::settle() const noexcept {
  if (state_)
    state_->wait();
}

void Event::wait() const {
  if (!state_)
    return;
  state_->wait();
  if (const std::exception_ptr error = state_->error())
    std::rethrow_exception(error);
}

}  // namespace sg

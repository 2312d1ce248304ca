#include "core/stream.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "core/device.h"
#include "core/error.h"
#include "core/trace.h"

namespace sg {

struct Event::State {
  std::mutex mutex;
  std::condition_variable passed;
  bool done = false;
  std::exception_ptr error;
  std::weak_ptr<Stream::State> stream;  // lazy mode only: whose queue runs when somebody waits
  Device device;

  void pass(std::exception_ptr e) {
    {
      std::lock_guard lock(mutex);
      done = true;
      error = std::move(e);
    }
    passed.notify_all();
  }
  bool is_done() {
    std::lock_guard lock(mutex);
    return done;
  }
};

namespace {

struct Task {
  const char* name;
  std::function<void()> run;           // empty for a marker
  std::shared_ptr<Event::State> mark;  // passed after `run`
  std::shared_ptr<Event::State> gate;  // the task waits for it first
};

std::atomic<bool> lazy_mode{false};
std::atomic<uint64_t> lazy_seed{0};

}  // namespace

struct Stream::State {
  Device device;
  std::string name;
  bool is_inline = false, is_lazy = false;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Task> queue;
  bool stop = false, running = false;
  std::exception_ptr error;
  std::thread worker;

  void finish();
  void run(Task& task);
  void loop();
  void push(Task task);
  bool try_run_one();  // lazy: runs the front task if there is one and its gate is open
};

namespace {

// What handles share. With the last of them the queue is emptied and its worker ends; the worker keeps the state
// itself, since the last handle may be one that a task holds, and goes with the task, on the worker.
struct Owner {
  std::shared_ptr<Stream::State> state;
  explicit Owner(std::shared_ptr<Stream::State> s) : state(std::move(s)) {}
  ~Owner() { state->finish(); }
  Owner(const Owner&) = delete;
  Owner& operator=(const Owner&) = delete;
};
std::shared_ptr<Stream::State> owned(const std::shared_ptr<Stream::State>& state) {
  return {std::make_shared<Owner>(state), state.get()};
}

// Lazy queues by device; a waiting thread drives those of the event's device.
struct LazyQueues {
  std::mutex mutex;
  std::vector<std::weak_ptr<Stream::State>> streams;
  uint64_t random = 88172645463325252ull;

  std::vector<std::shared_ptr<Stream::State>> shuffled(Device device) {
    std::lock_guard lock(mutex);
    std::vector<std::shared_ptr<Stream::State>> live;
    std::erase_if(streams, [&](const auto& weak) {
      auto stream = weak.lock();
      if (stream && stream->device == device) live.push_back(stream);
      return !stream;
    });
    for (size_t i = live.size(); i > 1; --i) {
      random ^= random << 13, random ^= random >> 7, random ^= random << 17;
      std::swap(live[i - 1], live[random % i]);
    }
    return live;
  }
};
LazyQueues& lazy_queues() {
  static auto* queues = new LazyQueues;
  return *queues;
}

void drive_until_done(Event::State& event) {
  while (!event.is_done()) {
    bool progress = false;
    for (auto& stream : lazy_queues().shuffled(event.device)) {
      if (event.is_done()) return;
      if (stream->try_run_one()) {
        progress = true;
        break;
      }
    }
    if (!progress) std::this_thread::yield();  // another thread runs what we wait for
  }
}

void await(Event::State& event) {
  if (!event.stream.expired()) drive_until_done(event);
  std::unique_lock lock(event.mutex);
  event.passed.wait(lock, [&] { return event.done; });
}

}  // namespace

void Stream::State::finish() {
  if (worker.joinable()) {
    {
      std::lock_guard lock(mutex);
      stop = true;
    }
    changed.notify_all();
    if (worker.get_id() == std::this_thread::get_id()) return worker.detach();  // it empties the queue, then ends
    worker.join();
  }
  for (Task& task : queue) run(task);  // a lazy queue that nobody waited for; a worker has emptied its own
}

void Stream::State::run(Task& task) {
  if (task.gate) {
    await(*task.gate);
    if (task.gate->error && !error) error = task.gate->error;
  }
  if (task.run && !error) {
    try {
      trace::Span span(task.name);
      task.run();
    } catch (...) { error = std::current_exception(); }
  }
  task.run = nullptr;  // what it kept alive goes before anybody is told that it is done
  if (task.mark) task.mark->pass(error);
}

void Stream::State::loop() {
  DeviceGuard guard(device);
  trace::name_thread(name);
  std::unique_lock lock(mutex);
  for (;;) {
    changed.wait(lock, [&] { return stop || !queue.empty(); });
    if (queue.empty()) return;
    Task task = std::move(queue.front());
    queue.pop_front();
    lock.unlock();
    run(task);
    lock.lock();
  }
}

bool Stream::State::try_run_one() {
  std::unique_lock lock(mutex);
  if (running || queue.empty()) return false;
  if (queue.front().gate && !queue.front().gate->is_done()) {
    auto gate = queue.front().gate;
    auto source = gate->stream.lock();
    lock.unlock();
    return source && source.get() != this && source->is_lazy && source->try_run_one();
  }
  Task task = std::move(queue.front());
  queue.pop_front();
  running = true;
  lock.unlock();
  run(task);
  lock.lock();
  running = false;
  return true;
}

void Stream::State::push(Task task) {
  if (is_inline) return run(task);
  {
    std::lock_guard lock(mutex);
    queue.push_back(std::move(task));
  }
  changed.notify_one();
}

Stream::Stream(Device device, std::string name) {
  const auto state = std::make_shared<State>();
  state_ = owned(state);
  state_->device = device;
  state_->name = std::move(name);
  state_->is_inline = device.type == DeviceType::meta;
  state_->is_lazy = !state_->is_inline && lazy_mode;
  if (state_->is_lazy) {
    std::lock_guard lock(lazy_queues().mutex);
    lazy_queues().random ^= lazy_seed * 0x9E3779B97F4A7C15ull;
    lazy_queues().streams.push_back(state_);
  } else if (!state_->is_inline) {
    // It has the state alone, not a handle, or it would never end.
    state_->worker = std::thread([state] { state->loop(); });
  }
}

Stream Stream::compute(Device device) {
  Stream stream;
  stream.state_ = owned(std::make_shared<State>());
  stream.state_->device = device;
  stream.state_->name = "compute";
  stream.state_->is_inline = true;
  return stream;
}

bool Stream::inline_stream() const { return state_->is_inline; }

void Stream::enqueue(const char* name, std::function<void()> task) {
  const auto state = state_;  // the task may end this handle
  state->push({name, std::move(task), nullptr, nullptr});
  if (state->is_inline && state->error) std::rethrow_exception(std::exchange(state->error, nullptr));
}

Event Stream::record() {
  auto mark = std::make_shared<Event::State>();
  if (state_->is_lazy) mark->stream = state_;
  mark->device = state_->device;
  state_->push({"record", nullptr, mark, nullptr});
  return Event(mark);
}

void Stream::wait(const Event& e) {
  if (e.state_) state_->push({"wait", nullptr, nullptr, e.state_});
}

void Stream::synchronize() { record().wait(); }

bool Event::done() const { return !state_ || state_->is_done(); }

void Event::wait() const {
  if (!state_) return;
  await(*state_);
  if (state_->error) std::rethrow_exception(state_->error);
}

void set_lazy_streams(bool on, uint64_t seed) {
  lazy_seed = seed;
  lazy_mode = on;
}

}  // namespace sg

#include "core/stream_cpu.h"

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
#include "core/stream.h"
#include "core/trace.h"

namespace sg {

namespace {

class CpuStream;

class CpuEvent final : public EventState {
 public:
  explicit CpuEvent(Device device) : device_(device) {}
  CpuEvent(Device device, std::weak_ptr<CpuStream> lazy)
      : device_(device), stream_(std::move(lazy)) {}

  bool done() override {
    std::lock_guard lock(mutex_);
    return done_;
  }
  void wait() override;
  std::exception_ptr error() override {
    std::lock_guard lock(mutex_);
    return error_;
  }
  bool advance() override;

  void pass(std::exception_ptr e) {
    {
      std::lock_guard lock(mutex_);
      done_ = true;
      error_ = std::move(e);
    }
    passed_.notify_all();
  }

 private:
  void drive_lazy_queues();

  std::mutex mutex_;
  std::condition_variable passed_;
  bool done_ = false;
  std::exception_ptr error_;
  const Device device_;
  const std::weak_ptr<CpuStream> stream_;  // lazy mode only: whose queue runs when somebody waits
};

struct Task {
  const char* name;
  std::function<void()> run;         // empty for a marker
  std::shared_ptr<CpuEvent> mark;    // passed after `run`
  std::shared_ptr<EventState> gate;  // the task waits for it first
};

std::atomic<bool> lazy_mode{false};
std::atomic<uint64_t> lazy_seed{0};

enum class Runs : uint8_t { at_once, on_a_worker, when_waited_for };

class CpuStream final : public StreamState {
 public:
  // With the last of the handles the queue is emptied and its worker ends; the worker keeps the
  // stream itself, since the last handle may be one that a task holds, and goes with the task, on
  // the worker.
  static std::shared_ptr<CpuStream> make(Device device, std::string name, Runs runs);

  CpuStream(Device device, std::string name, Runs runs)
      : device_(device), name_(std::move(name)), runs_(runs) {}

  void enqueue(const char* name, std::function<void()> task) override {
    push({name, std::move(task), nullptr, nullptr});
    if (is_inline() && error_)
      std::rethrow_exception(std::exchange(error_, nullptr));
  }
  std::shared_ptr<EventState> record() override;
  void wait(std::shared_ptr<EventState> event) override {
    push({"wait", nullptr, nullptr, std::move(event)});
  }
  bool is_inline() const override { return runs_ == Runs::at_once; }

  Device device() const { return device_; }
  bool try_run_one();  // lazy: runs the front task if there is one and its gate is open

 private:
  struct Owner;
  void finish();
  void run(Task& task);
  void loop();
  void push(Task task);

  const Device device_;
  const std::string name_;
  const Runs runs_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> queue_;
  bool stop_ = false, running_ = false;
  std::exception_ptr error_;
  std::thread worker_;
  std::weak_ptr<CpuStream> handle_;
};

struct CpuStream::Owner {
  std::shared_ptr<CpuStream> stream;
  explicit Owner(std::shared_ptr<CpuStream> s) : stream(std::move(s)) {}
  ~Owner() { stream->finish(); }
  Owner(const Owner&) = delete;
  Owner& operator=(const Owner&) = delete;
};

std::shared_ptr<CpuStream> CpuStream::make(Device device, std::string name, Runs runs) {
  const auto stream = std::make_shared<CpuStream>(device, std::move(name), runs);
  std::shared_ptr<CpuStream> handle(std::make_shared<Owner>(stream), stream.get());
  stream->handle_ = handle;
  // It has the stream alone, not a handle, or it would never end.
  if (runs == Runs::on_a_worker)
    stream->worker_ = std::thread([stream] { stream->loop(); });
  return handle;
}

// Lazy queues by device; a waiting thread drives those of the event's device.
struct LazyQueues {
  std::mutex mutex;
  std::vector<std::weak_ptr<CpuStream>> streams;
  uint64_t random = 88172645463325252ull;

  std::vector<std::shared_ptr<CpuStream>> shuffled(Device device) {
    std::lock_guard lock(mutex);
    std::vector<std::shared_ptr<CpuStream>> live;
    std::erase_if(streams, [&](const auto& weak) {
      auto stream = weak.lock();
      if (stream && stream->device() == device)
        live.push_back(stream);
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

void CpuEvent::drive_lazy_queues() {
  while (!done()) {
    bool progress = false;
    for (auto& stream : lazy_queues().shuffled(device_)) {
      if (done())
        return;
      if (stream->try_run_one()) {
        progress = true;
        break;
      }
    }
    if (!progress)
      std::this_thread::yield();  // another thread runs what we wait for
  }
}

void CpuEvent::wait() {
  if (!stream_.expired())
    drive_lazy_queues();
  std::unique_lock lock(mutex_);
  passed_.wait(lock, [&] { return done_; });
}

bool CpuEvent::advance() {
  const auto stream = stream_.lock();
  return stream && stream->try_run_one();
}

void CpuStream::finish() {
  if (worker_.joinable()) {
    {
      std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    if (worker_.get_id() == std::this_thread::get_id())
      return worker_.detach();  // it empties the queue, then ends
    worker_.join();
  }
  for (Task& task : queue_)
    run(task);  // a lazy queue that nobody waited for; a worker has emptied its own
}

void CpuStream::run(Task& task) {
  if (task.gate) {
    task.gate->wait();
    if (!error_)
      error_ = task.gate->error();
  }
  if (task.run && !error_) {
    try {
      trace::Span span(task.name);
      task.run();
    } catch (...) {
      error_ = std::current_exception();
    }
  }
  task.run = nullptr;  // what it kept alive goes before anybody is told that it is done
  if (task.mark)
    task.mark->pass(error_);
}

void CpuStream::loop() {
  DeviceGuard guard(device_);
  trace::name_thread(name_);
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stop_ || !queue_.empty(); });
    if (queue_.empty())
      return;
    Task task = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    run(task);
    lock.lock();
  }
}

bool CpuStream::try_run_one() {
  std::unique_lock lock(mutex_);
  if (running_ || queue_.empty())
    return false;
  if (const auto gate = queue_.front().gate; gate && !gate->done()) {
    lock.unlock();
    return gate->advance();
  }
  Task task = std::move(queue_.front());
  queue_.pop_front();
  running_ = true;
  lock.unlock();
  run(task);
  lock.lock();
  running_ = false;
  return true;
}

void CpuStream::push(Task task) {
  if (is_inline())
    return run(task);
  {
    std::lock_guard lock(mutex_);
    queue_.push_back(std::move(task));
  }
  changed_.notify_one();
}

std::shared_ptr<EventState> CpuStream::record() {
  const bool lazy = runs_ == Runs::when_waited_for;
  auto mark =
      lazy ? std::make_shared<CpuEvent>(device_, handle_) : std::make_shared<CpuEvent>(device_);
  push({"record", nullptr, mark, nullptr});
  return mark;
}

}  // namespace

namespace detail {

std::shared_ptr<StreamState> thread_stream(Device device, const std::string& name) {
  if (!lazy_mode)
    return CpuStream::make(device, name, Runs::on_a_worker);
  auto stream = CpuStream::make(device, name, Runs::when_waited_for);
  std::lock_guard lock(lazy_queues().mutex);
  lazy_queues().random ^= lazy_seed * 0x9E3779B97F4A7C15ull;
  lazy_queues().streams.push_back(stream);
  return stream;
}

std::shared_ptr<StreamState> inline_stream(Device device) {
  return CpuStream::make(device, "compute", Runs::at_once);
}

}  // namespace detail

void set_lazy_streams(bool on, uint64_t seed) {
  lazy_seed = seed;
  lazy_mode = on;
}

}  // namespace sg

#include "models/data/batches.h"

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "core/ledger.h"
#include "models/data/data.h"

namespace sg::models {
namespace {

void check_options(const BatchOptions& o) {
  check(o.size > 0 && o.context > 0 && o.micro_batches > 0,
        "batches: {} micro-batches of ({}, {})",
        o.micro_batches,
        o.size,
        o.context);
  check(0 <= o.rank && o.rank < o.world, "batches: rank {} of {}", o.rank, o.world);
}

}  // namespace

uint64_t BatchOptions::first_sample(uint64_t step, uint64_t number) const {
  const auto micro_batch = static_cast<uint64_t>(size);
  const uint64_t a_step =
      static_cast<uint64_t>(micro_batches) * static_cast<uint64_t>(world) * micro_batch;
  return samples_before.value_or(first_step * a_step) + (step - first_step) * a_step +
         number * micro_batch;
}

Batch Rows::to_batch() const {
  const CategoryScope scope(Category::data);
  const Shape shape{static_cast<int64_t>(tokens.size()) / context, context};
  return {from_vector(tokens, shape), from_vector(targets, shape), step, micro_batch, first_sample};
}

struct Batches::State {
  State(const Dataset& d, const BatchOptions& o) : data(d), options(o), thread([this] { run(); }) {}

  ~State() {
    {
      std::lock_guard lock(mutex);
      stop = true;
    }
    changed.notify_all();
    thread.join();
  }

  void run() {
    std::exception_ptr failure;
    try {
      for (uint64_t step = options.first_step; step < options.steps; ++step)
        for (int64_t j = 0; j < options.micro_batches; ++j)
          if (!put(data.training_rows(options, step, j)))
            return;
    } catch (...) {
      failure = std::current_exception();
    }
    std::lock_guard lock(mutex);
    ended = true;
    error = failure;
    changed.notify_all();
  }

  bool put(Rows rows) {  // false when nobody wants more
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return ready.size() < depth || stop; });
    if (!stop)
      ready.push_back(std::move(rows));
    changed.notify_all();
    return !stop;
  }

  std::optional<Rows> take() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return !ready.empty() || ended; });
    if (ready.empty() && error)
      std::rethrow_exception(error);
    if (ready.empty())
      return std::nullopt;
    std::optional<Rows> rows = std::move(ready.front());
    ready.pop_front();
    changed.notify_all();
    return rows;
  }

  const Dataset data;
  const BatchOptions options;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Rows> ready;
  bool stop = false, ended = false;
  std::exception_ptr error;
  std::thread thread;  // the last member: it uses all of them
};

Batches::Batches(const Dataset& data, const BatchOptions& options) {
  check_options(options);
  data.training_windows(options.context);  // too little data is told here, not by the thread
  state_ = std::make_unique<State>(data, options);
}
Batches::~Batches() = default;
Batches::Batches(Batches&&) noexcept = default;

bool Batches::next(Batch& batch) {
  batch = {};  // gives the memory back first
  const std::optional<Rows> rows = state_->take();
  if (rows)
    batch = rows->to_batch();
  return rows.has_value();
}

}  // namespace sg::models

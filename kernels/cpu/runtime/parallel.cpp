#include "kernels/cpu/runtime/parallel.h"

#include <dlfcn.h>
#include <immintrin.h>

#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace sg::kernels {
namespace {

thread_local int current_worker = -1;  // inside a task: the number of the worker that runs it

constexpr int spins_before_sleep =
    4000;  // about 50 µs: longer than the gap between two kernels of a step

}  // namespace

// Looked up at run time: the OpenMP that oneDNN was built with need not be this compiler's.
void use_one_openmp_thread() {
  using Set = void (*)(int);
  static const auto set = reinterpret_cast<Set>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
  thread_local bool done = false;
  if (!done && set)
    set(1);
  done = true;
}

struct ThreadPool::State {
  std::vector<std::thread> workers;
  std::mutex run_mutex;  // one run at a time

  // Every worker has a share of the task numbers, the same part of them in each run, so that it
  // finds in its cache what it wrote in the last one; who has done his own helps the others. A line
  // of its own for each: all count there.
  struct alignas(64) Share {
    std::atomic<int64_t> next{0};
    int64_t end = 0;
  };
  std::unique_ptr<Share[]> shares;
  int threads = 1;

  // A job is published by raising `generation`; `active` counts workers still inside.
  std::atomic<uint64_t> generation{0};
  std::atomic<int> active{0};
  void (*task)(void*, int64_t, int) = nullptr;
  void* context = nullptr;
  std::mutex error_mutex;
  std::exception_ptr error;  // the first that a task of the run threw

  std::mutex sleep_mutex;
  std::condition_variable wake;
  std::atomic<int> sleepers{0};
  bool stop = false;  // under sleep_mutex

  void work(int worker) noexcept {
    current_worker = worker;
    try {
      for (int offset = 0; offset < threads; ++offset) {
        Share& share = shares[static_cast<size_t>((worker + offset) % threads)];
        for (int64_t i; (i = share.next.fetch_add(1, std::memory_order_relaxed)) < share.end;)
          task(context, i, worker);
      }
    } catch (...) {
      failed(std::current_exception());
    }
    current_worker = -1;
  }
  void failed(std::exception_ptr e) {
    for (int worker = 0; worker < threads; ++worker) {
      Share& share = shares[static_cast<size_t>(worker)];
      share.next.store(share.end, std::memory_order_relaxed);
    }
    std::lock_guard lock(error_mutex);
    if (!error)
      error = std::move(e);
  }

  // Returns false when the pool is being destroyed.
  bool await(uint64_t seen) {
    for (int spin = 0; spin < spins_before_sleep; ++spin) {
      if (generation.load(std::memory_order_acquire) != seen)
        return true;
      _mm_pause();
    }
    std::unique_lock lock(sleep_mutex);
    sleepers.fetch_add(1, std::memory_order_seq_cst);
    wake.wait(lock, [&] { return stop || generation.load(std::memory_order_seq_cst) != seen; });
    sleepers.fetch_sub(1, std::memory_order_relaxed);
    return generation.load(std::memory_order_acquire) != seen;
  }

  void loop(int worker) {
    for (uint64_t seen = 0; await(seen);) {
      seen = generation.load(std::memory_order_acquire);
      work(worker);
      active.fetch_sub(1, std::memory_order_release);
    }
  }
};

ThreadPool::ThreadPool(int threads, const std::function<void(int)>& begin)
    : state_(std::make_unique<State>()) {
  state_->threads = threads > 1 ? threads : 1;
  state_->shares = std::make_unique<State::Share[]>(static_cast<size_t>(state_->threads));
  for (int worker = 1; worker < threads; ++worker) {
    state_->workers.emplace_back([state = state_.get(), worker, begin] {
      if (begin)
        begin(worker);
      state->loop(worker);
    });
  }
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard lock(state_->sleep_mutex);
    state_->stop = true;
  }
  state_->wake.notify_all();
  for (auto& worker : state_->workers)
    worker.join();
}

int ThreadPool::threads() const {
  return state_->threads;
}

int64_t ThreadPool::first_task(int64_t count, int64_t worker, int64_t threads, Deal deal) {
  if (deal == Deal::in_order)
    return worker == 0 ? 0 : count;
  return count * worker / threads;
}

void ThreadPool::run(int64_t count, void (*task)(void*, int64_t, int), void* context, Deal deal) {
  State& s = *state_;
  if (current_worker >= 0 || s.workers.empty() || count <= 1) {
    const int worker = current_worker >= 0 ? current_worker : 0;
    for (int64_t i = 0; i < count; ++i)
      task(context, i, worker);
    return;
  }
  std::lock_guard one_run(s.run_mutex);
  s.task = task;
  s.context = context;
  for (int64_t worker = 0; worker < s.threads; ++worker) {
    State::Share& share = s.shares[static_cast<size_t>(worker)];
    share.next.store(first_task(count, worker, s.threads, deal), std::memory_order_relaxed);
    share.end = first_task(count, worker + 1, s.threads, deal);
  }
  s.active.store(static_cast<int>(s.workers.size()), std::memory_order_relaxed);
  s.generation.fetch_add(1, std::memory_order_seq_cst);
  if (s.sleepers.load(std::memory_order_seq_cst) > 0) {
    std::lock_guard lock(s.sleep_mutex);
    s.wake.notify_all();
  }
  s.work(0);
  // The next run overwrites the job, so every worker must have left this one.
  for (int spin = 0; s.active.load(std::memory_order_acquire) != 0; ++spin) {
    if (spin < spins_before_sleep)
      _mm_pause();
    else
      std::this_thread::yield();
  }
  if (s.error) [[unlikely]]
    std::rethrow_exception(std::exchange(s.error, nullptr));
}

}  // namespace sg::kernels

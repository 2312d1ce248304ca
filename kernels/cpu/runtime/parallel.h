// The thread pool of a CPU device. Compiled once, without instruction-set flags.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <type_traits>

#include "kernels/cpu/runtime/plan.h"
#include "kernels/device.h"
#include "kernels/dtype.h"

namespace sg::kernels {

// A fixed set of workers that run numbered tasks; the caller is one of them. A worker begins with
// its own share of the numbers and then helps the others: which takes which task is open, so a
// task's result must depend on its number alone. One run at a time; a run from inside a task
// executes inline, under the number of the worker it is on. Workers spin briefly, then sleep.
class ThreadPool {
 public:
  // How tasks are dealt. Shares: to every worker the same part of the numbers in each run. In
  // order: whoever is free takes the lowest number; for tasks of unequal size, the largest of which
  // have the lowest numbers.
  enum class Deal { shares, in_order };

  // `begin` is called by each new worker, 1 … threads − 1, before its first task; may be empty.
  explicit ThreadPool(int threads, const std::function<void(int worker)>& begin = {});
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const;  // the caller included
  // Calls task(context, i, worker) once for each i in [0, count), worker in [0, threads()); returns
  // when all are done. Where a task throws, those that nobody has begun are dropped; the exception
  // comes out here once every worker has left, so that what the tasks refer to outlives them.
  void run(int64_t count,
           void (*task)(void* context, int64_t i, int worker),
           void* context,
           Deal = Deal::shares);
  // A worker's own share is from its own first task to the next worker's.
  static int64_t first_task(int64_t count, int64_t worker, int64_t threads, Deal);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// From here on oneDNN sees one OpenMP thread on the calling thread: products are parallel over
// tiles, not inside them.
void use_one_openmp_thread();

SG_INLINE int threads_of(StreamHandle s) {
  return s.raw ? static_cast<ThreadPool*>(s.raw)->threads() : 1;
}

// body(i, worker) for i in [0, count).
template <class F>
void parallel_for(StreamHandle s,
                  int64_t count,
                  F&& body,
                  ThreadPool::Deal deal = ThreadPool::Deal::shares) {
  using Body = std::remove_reference_t<F>;
  if (!s.raw || count <= 1) {
    for (int64_t i = 0; i < count; ++i)
      body(i, 0);
    return;
  }
  static_cast<ThreadPool*>(s.raw)->run(
      count,
      [](void* context, int64_t i, int worker) { (*static_cast<Body*>(context))(i, worker); },
      const_cast<void*>(static_cast<const void*>(&body)),
      deal);
}

// body(begin, end, worker) over chunks of `chunk` elements of [0, n).
template <class F>
void parallel_chunks(StreamHandle s, int64_t n, int64_t chunk, F&& body) {
  parallel_for(s, divide_up(n, chunk), [&](int64_t i, int worker) {
    const int64_t begin = i * chunk;
    body(begin, begin + chunk < n ? begin + chunk : n, worker);
  });
}
template <class F>
void parallel_chunks(StreamHandle s, const plan::Chunks& chunks, F&& body) {
  parallel_chunks(s, chunks.n, chunks.each, body);
}

}  // namespace sg::kernels

#include "tests/cuda_sim/executor.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "tests/cuda_sim/faults.h"
#include "tests/cuda_sim/fiber.h"
#include "tests/cuda_sim/memory.h"
#include "tests/cuda_sim/race.h"
#include "tests/cuda_sim/random.h"

uint3 threadIdx{}, blockIdx{};
dim3 blockDim, gridDim;

namespace simt {

Thread* current = nullptr;
uint32_t block_number = 0;

namespace {

constexpr uint32_t lanes = 32;

struct Warp {
  uint32_t waiting = 0;  // lanes in a warp operation
  void* payloads[lanes] = {};
};

std::string site(const Thread& t) {
  const std::string file = t.where.file_name();
  return file.substr(file.rfind('/') + 1) + ":" + std::to_string(t.where.line());
}

std::string place(const Thread& t) {
  using State = Thread::State;
  switch (t.state) {
    case State::unstarted: return "not started";
    case State::ready: return "ready";
    case State::finished: return "returned";
    case State::at_barrier: return "at the barrier in " + site(t);
    case State::in_warp: return "in the warp operation in " + site(t);
  }
  return "";
}

class Executor {
 public:
  void run(const Grid& grid, const std::function<void()>& thread);
  int block_barrier(Meeting meeting, bool vote, std::source_location where);
  void warp_operation(Meeting meeting,
                      uint32_t mask,
                      void* payload,
                      void (*compute)(void**, uint32_t),
                      std::source_location where);
  [[noreturn]] void fail(const char* why);
  std::string description(const char* why) const;
  size_t shared_bytes() const { return grid_.shared_bytes; }
  void set(const Options& options);

 private:
  void run_block(uint64_t number);
  static void thread_main();
  void run_threads();
  void finish(Thread& thread);
  void start(Thread& thread, Fiber* fiber);
  Thread* next_to_run();
  void suspend();
  void become(Thread* thread);
  void continue_at(Thread* next, bool ending);
  void make_ready(uint32_t thread) {
    threads_[thread].state = Thread::State::ready, ready_.push_back(thread);
  }
  void check_barrier();
  void release_barrier();
  void release_warp(uint32_t warp, uint32_t mask);
  void arrange(uint32_t* begin, size_t count);
  Fiber* take_fiber();

  Options options_;
  Random random_{1};
  Grid grid_;
  const std::function<void()>* kernel_ = nullptr;

  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  std::vector<uint32_t> start_order_;
  size_t started_ = 0;           // how many of start_order_
  std::vector<uint32_t> ready_;  // threads that waited and may go on
  size_t ready_begin_ = 0;
  uint32_t live_ = 0, at_barrier_ = 0;
  int votes_ = 0, barrier_result_ = 0;
  bool failed_ = false;

  Fiber host_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> free_fibers_;
};

// Never destroyed: fibers of a failed kernel are abandoned as they stand.
Executor& executor() {
  static Executor& instance = *new Executor;
  return instance;
}

void Executor::set(const Options& options) {
  options_ = options;
  random_ = Random(options.seed);
  fibers_.clear();
}

void Executor::run(const Grid& grid, const std::function<void()>& thread) {
  grid_ = grid;
  kernel_ = &thread;
  failed_ = false;
  gridDim = grid.grid;
  blockDim = grid.block;
  const uint32_t count = grid.block.x * grid.block.y * grid.block.z;
  threads_.resize(count);
  start_order_.resize(count);
  warps_.resize((count + lanes - 1) / lanes);
  race::kernel_begins();

  std::vector<uint32_t> blocks(grid.grid.x * grid.grid.y * grid.grid.z);
  for (uint32_t i = 0; i < blocks.size(); ++i)
    blocks[i] = i;
  arrange(blocks.data(), blocks.size());
  for (const uint32_t block : blocks) {
    if (!failed_)
      run_block(block);
  }
  current = nullptr;
  end_shared_memory();
}

void Executor::run_block(uint64_t number) {
  const dim3 g = grid_.grid, b = grid_.block;
  block_number = static_cast<uint32_t>(number);
  blockIdx = {block_number % g.x, block_number / g.x % g.y, block_number / (g.x * g.y)};
  for (uint32_t i = 0; i < threads_.size(); ++i) {
    threads_[i] = Thread{};
    threads_[i].linear = i;
    threads_[i].index = {i % b.x, i / b.x % b.y, i / (b.x * b.y)};
    start_order_[i] = i;
  }
  arrange(start_order_.data(), start_order_.size());
  std::fill(warps_.begin(), warps_.end(), Warp{});
  ready_.clear();
  ready_begin_ = started_ = 0;
  live_ = static_cast<uint32_t>(threads_.size());
  at_barrier_ = 0;
  votes_ = 0;
  free_fibers_.clear();
  for (auto& fiber : fibers_)
    free_fibers_.push_back(fiber.get());
  race::block_begins();
  begin_shared_memory();

  start(threads_[start_order_[started_++]], take_fiber());
  become(&threads_[start_order_[0]]);
  host_.switch_to(*current->fiber);
}

void Executor::arrange(uint32_t* begin, size_t count) {
  if (options_.order == Order::reverse)
    std::reverse(begin, begin + count);
  if (options_.order == Order::random)
    for (size_t i = count; i > 1; --i)
      std::swap(begin[i - 1], begin[random_.below(i)]);
}

// ---- threads and their fibers ----

Fiber* Executor::take_fiber() {
  if (free_fibers_.empty()) {
    const int colour = static_cast<int>(fibers_.size());
    fibers_.push_back(
        std::make_unique<Fiber>(options_.stack_bytes, colour, options_.portable_switch));
    return fibers_.back().get();
  }
  Fiber* fiber = free_fibers_.back();
  free_fibers_.pop_back();
  return fiber;
}

void Executor::start(Thread& thread, Fiber* fiber) {
  thread.state = Thread::State::ready;
  thread.fiber = fiber;
  fiber->restart(&thread_main);
}

void Executor::thread_main() {
  Fiber::entered();
  executor().run_threads();
}

// A fiber whose thread ends takes the next unstarted thread as it stands: kernels without barriers
// never switch.
void Executor::run_threads() {
  for (;;) {
    Thread& thread = *current;
    (*kernel_)();
    finish(thread);
    if (started_ == threads_.size())
      break;
    Thread& next = threads_[start_order_[started_++]];
    next.state = Thread::State::ready;
    next.fiber = thread.fiber;
    become(&next);
  }
  free_fibers_.push_back(current->fiber);
  Thread* next = next_to_run();
  if (!next && live_ > 0)
    fail("deadlock: threads wait for each other");
  continue_at(next, true);
}

void Executor::finish(Thread& thread) {
  thread.state = Thread::State::finished;
  --live_;
  if (live_ > 0 && at_barrier_ == live_)
    fail("a thread returned while the others wait at a block barrier");
  const uint32_t lane = thread.linear % lanes, first = thread.linear - lane;
  for (uint32_t rest = warps_[thread.linear / lanes].waiting; rest; rest &= rest - 1) {
    const Thread& other = threads_[first + static_cast<uint32_t>(std::countr_zero(rest))];
    if (other.mask >> lane & 1)
      fail("a lane named in the mask of a warp operation returned");
  }
}

// Started threads go first, so that a warp's shuffles end before the next warp begins; in random
// order either may.
Thread* Executor::next_to_run() {
  const size_t waiting = ready_.size() - ready_begin_;
  const bool may_start = started_ < threads_.size();
  if (may_start && (waiting == 0 || (options_.order == Order::random && random_.below(2)))) {
    Thread& thread = threads_[start_order_[started_++]];
    start(thread, take_fiber());
    return &thread;
  }
  if (waiting == 0)
    return nullptr;
  if (options_.order != Order::random) {
    Thread& thread = threads_[ready_[ready_begin_++]];
    if (waiting == 1)
      ready_.clear(), ready_begin_ = 0;
    return &thread;
  }
  // Mostly the thread that became ready last, so that some run far ahead of the others.
  if (random_.below(8) == 0)
    std::swap(ready_[ready_begin_ + random_.below(waiting)], ready_.back());
  const uint32_t thread = ready_.back();
  ready_.pop_back();
  return &threads_[thread];
}

void Executor::become(Thread* thread) {
  current = thread;
  threadIdx = thread->index;
}

// To the host where next is null.
void Executor::continue_at(Thread* next, bool ending) {
  Fiber& from = *current->fiber;
  if (next)
    become(next);
  from.switch_to(next ? *next->fiber : host_, ending);
}

// Returns when another thread has made this one ready and its turn has come.
void Executor::suspend() {
  Thread* next = next_to_run();
  if (!next)
    fail("deadlock: threads wait for each other");
  if (next != current)
    continue_at(next, false);
}

// The kernel's fibers are abandoned where they stand, which is why kernels hold no resources, nor
// does this frame.
void Executor::fail(const char* why) {
  failed_ = true;
  report_fault(description(why));
  continue_at(nullptr, true);
  std::abort();  // a failed block is never continued
}

// The fault, who made it, and where the block's threads are, runs of threads at one place together.
std::string Executor::description(const char* why) const {
  const auto number = [](uint32_t n) { return std::to_string(n); };
  std::string line = why;
  if (current->where.line() > 0)
    line += " in " + site(*current);
  line += " (block " + number(block_number) + ", thread " + number(current->linear) + ", " +
          place(*current);
  size_t shown = 0;
  for (uint32_t i = 0; i < threads_.size() && shown < 8; ++shown) {
    uint32_t end = i + 1;
    const std::string at = place(threads_[i]);
    while (end < threads_.size() && place(threads_[end]) == at)
      ++end;
    line += "; threads " + number(i) + "–" + number(end - 1) + " " + at;
    i = end;
  }
  return line + ")";
}

// ---- block barriers ----

int Executor::block_barrier(Meeting meeting, bool vote, std::source_location where) {
  Thread& self = *current;
  self.state = Thread::State::at_barrier;
  self.meeting = meeting;
  self.where = where;
  votes_ += vote;
  if (++at_barrier_ == live_) {
    check_barrier();
    release_barrier();
    // In random order the last to arrive doesn't get to go first.
    if (options_.order == Order::random)
      make_ready(self.linear), suspend();
  } else {
    suspend();
  }
  self.state = Thread::State::ready;
  return barrier_result_;
}

void Executor::check_barrier() {
  if (live_ < threads_.size())
    fail("a block barrier that some threads miss: they have returned");
  for (const Thread& other : threads_) {
    const std::source_location here = current->where, there = other.where;
    if (other.meeting != current->meeting || there.line() != here.line() ||
        std::strcmp(there.file_name(), here.file_name()) != 0)
      fail("divergent block barrier: threads met at different calls");
  }
}

void Executor::release_barrier() {
  barrier_result_ = votes_;
  votes_ = 0;
  at_barrier_ = 0;
  race::block_barrier();
  const size_t released = ready_.size();
  for (Thread& t : threads_)
    if (t.state == Thread::State::at_barrier && &t != current)
      make_ready(t.linear);
  arrange(ready_.data() + released, ready_.size() - released);
}

// ---- warp operations ----

void Executor::warp_operation(Meeting meeting,
                              uint32_t mask,
                              void* payload,
                              void (*compute)(void**, uint32_t),
                              std::source_location where) {
  Thread& self = *current;
  const uint32_t number = self.linear / lanes, lane = self.linear % lanes,
                 first = self.linear - lane;
  Warp& warp = warps_[number];
  self.state = Thread::State::in_warp;
  self.meeting = meeting;
  self.mask = mask;
  self.where = where;
  if (!(mask >> lane & 1))
    fail("a warp operation whose caller is not in its own mask");
  const size_t in_block = threads_.size() - first;
  if (in_block < lanes)
    mask &= (1u << in_block) - 1;  // the last warp may be short
  warp.payloads[lane] = payload;
  warp.waiting |= 1u << lane;

  for (uint32_t rest = mask; rest; rest &= rest - 1) {
    const Thread& other = threads_[first + static_cast<uint32_t>(std::countr_zero(rest))];
    if (other.state == Thread::State::finished)
      fail("a lane named in the mask of a warp operation returned");
    if (other.state == Thread::State::in_warp &&
        (other.meeting != meeting || other.mask != self.mask))
      fail("lanes of one mask called different warp operations or masks");
  }
  if ((warp.waiting & mask) == mask) {
    compute(warp.payloads, mask);
    race::warp_barrier(number);
    release_warp(number, mask);
  } else {
    suspend();
  }
  self.state = Thread::State::ready;
}

void Executor::release_warp(uint32_t number, uint32_t mask) {
  warps_[number].waiting &= ~mask;
  const size_t released = ready_.size();
  for (uint32_t rest = mask; rest; rest &= rest - 1) {
    const uint32_t thread = number * lanes + static_cast<uint32_t>(std::countr_zero(rest));
    if (thread != current->linear)
      make_ready(thread);
  }
  arrange(ready_.data() + released, ready_.size() - released);
}

}  // namespace

int block_barrier(Meeting meeting, bool vote, std::source_location where) {
  return executor().block_barrier(meeting, vote, where);
}
void warp_operation(Meeting meeting,
                    uint32_t mask,
                    void* payload,
                    void (*compute)(void**, uint32_t),
                    std::source_location where) {
  executor().warp_operation(meeting, mask, payload, compute, where);
}
void device_trap(const char* fault, std::source_location where) {
  current->where = where;
  executor().fail(fault);
}
void* dynamic_shared() {
  static const char key = 0;
  return shared_array(&key, executor().shared_bytes(), 128);
}
void run_grid(const Grid& grid, const std::function<void()>& thread) {
  executor().run(grid, thread);
}
void set_executor_options(const Options& options) {
  executor().set(options);
}

}  // namespace simt

#include "dist/comm/threads.h"

#include <algorithm>
#include <cstring>

#include "dist/comm/reduce.h"

namespace sg::dist {

ThreadWorld::ThreadWorld(int ranks, double bandwidth, double latency)
    : ranks(ranks),
      bandwidth(bandwidth),
      latency(latency),
      boards(std::make_unique<FlightBoard[]>(ranks)),
      busy(ranks) {}

void ThreadWorld::fail(int rank, const std::string& text, std::exception_ptr cause) noexcept {
  {
    std::lock_guard lock(mutex);
    if (failed)
      return;
    failed = true, failed_rank = rank, message = text, error = std::move(cause);
  }
  changed.notify_all();
}

ThreadTransport::ThreadTransport(std::shared_ptr<ThreadWorld> world,
                                 std::shared_ptr<ThreadGroup> group,
                                 int rank,
                                 int number)
    : world_(std::move(world)), group_(std::move(group)), rank_(rank), number_(number) {}

// Waits until `awaited()` is empty; it lists the ranks still waited for. One of them that is busy
// restarts the clock.
template <class Awaited>
void ThreadTransport::await(std::unique_lock<std::mutex>& lock,
                            Watch& watch,
                            const Awaited& awaited) {
  const auto signs_of = [&](const std::vector<int>& ranks) {
    uint64_t signs = 0;
    for (int rank : ranks)
      signs += world_->busy[rank];
    return signs;
  };
  for (std::vector<int> ranks; !(ranks = awaited()).empty();) {
    const uint64_t signs = signs_of(ranks);
    if (world_->failed) {
      sg::fail(ErrorKind::peer,
               "{} on rank {}, call #{}: rank {} failed: {}",
               watch.call().describe(),
               world_rank(rank_),
               watch.call().sequence,
               world_->failed_rank,
               world_->message);
    }
    const bool late = world_->changed.wait_until(lock, watch.next()) == std::cv_status::timeout;
    if (signs_of(ranks) != signs)
      watch.restart();
    else if (late)
      watch.check(ranks);
  }
}

// What this rank has posted to others. However the call ends, nobody is at work on this rank's
// memory afterwards.
class ThreadTransport::Posted {
 public:
  explicit Posted(ThreadTransport& transport) : transport_(transport) {}
  Posted(const Posted&) = delete;
  Posted& operator=(const Posted&) = delete;

  void add(int to, const CallRecord& call, void* data, void* result, uint64_t bytes) {
    std::lock_guard lock(transport_.world_->mutex);
    transport_.slot(transport_.rank_, to) = {Slot::State::posted, &call, data, result, bytes};
    to_.push_back(to);
    transport_.world_->changed.notify_all();
  }

  void await_taken(Watch& watch) {
    std::unique_lock lock(transport_.world_->mutex);
    transport_.await(lock, watch, [&] {
      return left([](Slot::State state) { return state != Slot::State::free; });
    });
    to_.clear();
  }

  ~Posted() {
    if (to_.empty())
      return;
    std::unique_lock lock(transport_.world_->mutex);
    for (int to : to_) {
      Slot& slot = transport_.slot(transport_.rank_, to);
      if (slot.state == Slot::State::posted)
        slot.state = Slot::State::free;
    }
    transport_.world_->changed.wait(
        lock, [&] { return left([](Slot::State s) { return s == Slot::State::taken; }).empty(); });
  }

 private:
  template <class Is>
  std::vector<int> left(Is is) const {
    std::vector<int> ranks;
    for (int to : to_) {
      if (is(transport_.slot(transport_.rank_, to).state))
        ranks.push_back(transport_.world_rank(to));
    }
    return ranks;
  }

  ThreadTransport& transport_;
  std::vector<int> to_;
};

// Slots that this rank is at work on; they are free again afterwards, whatever happens.
class ThreadTransport::Taken {
 public:
  explicit Taken(ThreadWorld& world) : world_(world) {}
  Taken(const Taken&) = delete;
  Taken& operator=(const Taken&) = delete;
  void add(Slot& slot) {  // the world's mutex is held
    slot.state = Slot::State::taken;
    slots_.push_back(&slot);
  }
  ~Taken() {
    if (slots_.empty())
      return;
    std::lock_guard lock(world_.mutex);
    for (Slot* slot : slots_)
      slot->state = Slot::State::free;
    world_.changed.notify_all();
  }

 private:
  ThreadWorld& world_;
  std::vector<Slot*> slots_;
};

void ThreadTransport::exchange(const Pieces& send, const Pieces& receive, Watch& watch) {
  const auto self = rank_;
  const bool compares = watch.takes_comparison();
  const auto travels = [&](int p, const Piece& piece) {
    return p != rank_ && (piece.bytes > 0 || (compares && watch.meets(p)));
  };
  Posted posted(*this);
  for (int p = 0; p < size(); ++p) {
    const Piece& piece = send[p];
    if (travels(p, piece))
      posted.add(p, watch.call(), piece.data, nullptr, piece.bytes);
  }
  if (send[self].bytes > 0 && send[self].data != receive[self].data) {
    std::memcpy(receive[self].data, send[self].data, send[self].bytes);
  }
  for (int i = 1; i < size(); ++i) {  // each rank begins with another one
    const int from = (rank_ + i) % size();
    const Piece& piece = receive[from];
    if (!travels(from, piece))
      continue;
    Slot& slot = this->slot(from, rank_);
    Taken taken(*world_);
    {
      std::unique_lock lock(world_->mutex);
      await(lock, watch, [&] {
        return slot.state == Slot::State::posted ? std::vector<int>{}
                                                 : std::vector<int>{world_rank(from)};
      });
      taken.add(slot);
    }
    if (compares)
      watch.compare(*slot.call, rank_, from, world_rank(from));
    check(ErrorKind::peer,
          slot.bytes == piece.bytes,
          "{} on rank {}, call #{}: rank {} sends {} bytes, {} are expected",
          watch.call().describe(),
          world_rank(rank_),
          watch.call().sequence,
          world_rank(from),
          slot.bytes,
          piece.bytes);
    if (piece.bytes > 0)
      std::memcpy(piece.data, slot.data, piece.bytes);
  }
  posted.await_taken(watch);
}

// The owner reads every rank's contribution where it lies and, for an all-reduce, writes the sum to
// where each wants it: the least memory traffic there is.
std::optional<NonFinite> ThreadTransport::reduce_ordered(const ReduceJob& job, Watch& watch) {
  const bool compares = watch.takes_comparison();
  Posted posted(*this);
  for (int p = 0; p < size(); ++p) {
    const int64_t count = job.shards.count(p);
    if (p == rank_ || (count == 0 && !compares))
      continue;
    const View term = job.in_of(p);
    posted.add(p, watch.call(), term.data, job.all ? job.out_of(p).data : nullptr, bytes_of(term));
  }
  std::optional<NonFinite> found;
  if (const int64_t count = job.shards.count(rank_); count > 0 || compares) {
    Taken taken(*world_);
    take_terms(taken, watch);
    std::vector<View> inputs(size(), job.in_of(rank_));
    std::vector<View> outs{job.out_of(rank_)};
    for (int p = 0; p < size(); ++p) {
      if (p == rank_)
        continue;
      const Slot& theirs = slot(p, rank_);
      if (compares)
        watch.compare(*theirs.call, rank_, p, world_rank(p));
      const bool as_expected = count == 0 || (theirs.result != nullptr) == job.all;
      check(ErrorKind::peer,
            theirs.bytes == job.in_bytes(count) && as_expected,
            "{} on rank {}, call #{}: rank {} makes another call ({} bytes, {} expected)",
            watch.call().describe(),
            world_rank(rank_),
            watch.call().sequence,
            world_rank(p),
            theirs.bytes,
            job.in_bytes(count));
      inputs[p].data = theirs.data;
      if (job.all)
        outs.push_back(flat_view(theirs.result, job.out.dtype, count));
    }
    if (count > 0)
      found = sum_in_rank_order(*job.kernels, inputs, outs, job.scale, job.shards.offset(rank_));
  }
  posted.await_taken(watch);
  return found;
}

// Waits until every other rank has posted its term for this one, and takes them all.
void ThreadTransport::take_terms(Taken& taken, Watch& watch) {
  std::unique_lock lock(world_->mutex);
  await(lock, watch, [&] {
    std::vector<int> missing;
    for (int p = 0; p < size(); ++p) {
      if (p != rank_ && slot(p, rank_).state != Slot::State::posted)
        missing.push_back(world_rank(p));
    }
    return missing;
  });
  for (int p = 0; p < size(); ++p) {
    if (p != rank_)
      taken.add(slot(p, rank_));
  }
}

void ThreadTransport::reduce_native(const ReduceJob& job, Watch& watch) {
  reduce_ordered(job, watch);  // nothing is more native to shared memory
}

void ThreadTransport::emulate_link(uint64_t bytes, int messages) {
  double seconds = messages * world_->latency;
  if (world_->bandwidth > 0)
    seconds += static_cast<double>(bytes) / world_->bandwidth;
  if (seconds <= 0)
    return;
  std::unique_lock lock(world_->mutex);
  world_->changed.wait_for(
      lock, std::chrono::duration<double>(seconds), [&] { return world_->failed; });
}

void ThreadTransport::say_busy() {
  std::lock_guard lock(world_->mutex);
  ++world_->busy[world_rank(rank_)];
  world_->changed.notify_all();
}

std::unique_ptr<Transport> ThreadTransport::split(const std::vector<int>& colours,
                                                  const std::vector<int>& keys,
                                                  int group) {
  const std::vector<int> ranks = members(colours, keys);
  const auto mine = std::find(ranks.begin(), ranks.end(), world_rank(rank_)) - ranks.begin();
  std::lock_guard lock(world_->mutex);
  auto& made = world_->groups[{group, ranks[0]}];
  if (!made)
    made = std::make_shared<ThreadGroup>(
        ThreadGroup{ranks, std::vector<Slot>(ranks.size() * ranks.size())});
  return std::make_unique<ThreadTransport>(world_, made, static_cast<int>(mine), group);
}

void ThreadTransport::fail(const std::string& message) noexcept {
  world_->fail(world_rank(rank_), message, std::current_exception());
}

void ThreadTransport::abort(const std::string& message, int) {
  fail(message);
}

}  // namespace sg::dist

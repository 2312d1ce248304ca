// What a kind of group must be able to do: move pieces between ranks, sum up in rank order, and
// tell of its end. Comm makes every collective of these. Unless said otherwise a function runs on
// the comm stream and returns when this rank's part is done.
#pragma once
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/stream.h"
#include "dist/comm/comm.h"
#include "dist/comm/record.h"

namespace sg::dist {

struct Piece {
  void* data = nullptr;  // of a piece to send: only read
  uint64_t bytes = 0;
};
using Pieces = std::vector<Piece>;  // one per rank of the group; empty ones don't travel

inline Piece piece_of(const View& x) {
  return {x.data, bytes_of(x)};
}

// A reduction: `in` (shards.total()); `out` (the same) where all ranks receive the whole, else this
// rank's shard. Both dense and one-dimensional.
struct ReduceJob {
  const KernelTable* kernels;
  View in;
  View out;
  Shards shards;
  float scale;
  bool all;

  DType dtype() const { return in.dtype; }
  View in_of(int rank) const { return flat_range(in, shards.offset(rank), shards.count(rank)); }
  View out_of(int rank) const {
    return flat_range(out, all ? shards.offset(rank) : 0, shards.count(rank));
  }
  bool in_place() const { return in.data == out.data && in.dtype == out.dtype; }
  uint64_t in_bytes(int64_t elements) const { return bytes_of(flat_range(in, 0, elements)); }
  uint64_t out_bytes(int64_t elements) const { return bytes_of(flat_range(out, 0, elements)); }
};

// What one call is judged by: a clock that warns half-way and throws Error peer at its deadline,
// and what this rank says of the call to the others.
class Watch {
 public:
  using Clock = std::chrono::steady_clock;
  Watch(const CallRecord& call, int rank, double timeout, bool compares);
  void check(const std::vector<int>& awaited);  // the ranks still waited for; empty: unknown
  Clock::time_point next() const {
    return warned_ ? deadline_ : warning_;
  }  // when check has something to do
  void
  restart();  // a rank that is waited for has said that it is busy: the time-out is for silence
  const CallRecord& call() const { return call_; }

  // True once, for the call's first move, where ranks compare their calls: in it every rank tells
  // every other one (a message: its other end) its record, also where no data goes there, and
  // checks theirs before it touches data.
  bool takes_comparison() { return std::exchange(compares_, false); }
  bool meets(int rank) const {
    return call_.peer < 0 || call_.peer == rank;
  }  // of the group: a party to this call
  // Throws Error peer unless `theirs` is the same call, seen from the other end. Ranks of the
  // group, and of the world.
  void compare(const CallRecord& theirs, int rank, int from, int world_from) const;

 private:
  const CallRecord call_;
  const int rank_;
  const double timeout_;
  Clock::time_point begin_, warning_, deadline_;
  bool warned_ = false;
  bool compares_;
};

// Messages between hosts: pieces in host memory, whatever device the group computes on.
class HostChannel {
 public:
  virtual ~HostChannel() = default;
  // Sends send[p] to every rank p and receives receive[p] from it; the own entry is copied. The
  // first move of a call compares it (Watch::takes_comparison).
  virtual void exchange(const Pieces& send, const Pieces& receive, Watch& watch) = 0;
};

class Transport {
 public:
  virtual ~Transport() = default;
  virtual HostChannel& host() = 0;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual int world_rank(int rank) const = 0;  // what messages name
  virtual int group() const = 0;               // 0: the world

  // Moves of what tensors hold, as HostChannel does for the host's memory.
  virtual void exchange(const Pieces& send, const Pieces& receive, Watch& watch) = 0;
  // Rule 3 of the numerics, by the owner of each shard.
  virtual std::optional<NonFinite> reduce_ordered(const ReduceJob& job, Watch& watch) = 0;
  virtual void reduce_native(const ReduceJob& job, Watch& watch) = 0;
  // Whether pieces have memory behind them; a group that is only thought of keeps books.
  virtual bool moves_data() const { return true; }
  // The ranks of the world that share this rank's colour, by key, then rank: those of its part in a
  // split.
  std::vector<int> members(const std::vector<int>& colours, const std::vector<int>& keys) const;
  // An emulated link sleeps for as long as these bytes and messages would take.
  virtual void emulate_link(uint64_t, int) {}
  // The group of those with equal colour; colours[p] and keys[p] of every rank p are known to all.
  virtual std::unique_ptr<Transport> split(const std::vector<int>& colours,
                                           const std::vector<int>& keys,
                                           int group) = 0;

  virtual bool splits_at_once() const {
    return true;
  }  // false: inside a library, where no deadline is watched

  // Says to the group that this rank is busy, which restarts the clocks of those who wait for it.
  virtual void say_busy() {}

  // From any thread. fail: the first message given by any rank ends all calls of all ranks that
  // share this process.
  virtual void fail(const std::string& message) noexcept = 0;
  virtual void abort(const std::string& message, int exit_code) = 0;
  virtual FlightBoard* board(int world_rank) = 0;  // null where it can't be seen from here
  virtual int world_size() const = 0;
};

// One call on its way: how ranks compare it, what it moves, and what to run on the comm stream.
struct CommJob {
  CallRecord record;
  Traffic traffic;
  int messages = 1;    // one after another, on the longest path: latencies of an emulated link
  double timeout = 0;  // seconds; 0: the group's
  std::vector<Tensor> tensors{};  // what it reads and writes
  std::function<std::optional<NonFinite>(Transport&, Watch&)> run;
};

// Waits for what blocks where no call of ours polls. Error peer after `timeout` seconds.
void wait_within(const Event& event, double timeout, const char* what);

// What the groups of one rank share.
struct CommShared {
  CommShared(Device device, Checks checks, double timeout)
      : device(device),
        checks(checks),
        timeout(timeout),
        compute(Stream::compute(device)),
        stream(device, "comm") {}
  const Device device;
  const Checks checks;
  const double timeout;
  TrafficLedger traffic;
  int groups = 1;  // numbers given to groups so far
  Stream compute, stream;
};

}  // namespace sg::dist

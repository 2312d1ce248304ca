// What a kind of group must be able to do: move pieces between ranks, sum up in rank order, and tell of its end. Comm
// makes every collective of these. Unless said otherwise a function runs on the comm stream and returns when this
// rank's part is done.
#pragma once
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
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

// A reduction: `in` holds shards.total() elements; `out` as many where all ranks receive the whole, else this rank's
// shard.
struct ReduceJob {
  const KernelTable* kernels;
  void* in;
  void* out;
  DType dtype, out_dtype;
  Shards shards;
  float scale;
  bool all;

  void* in_of(int rank) const { return static_cast<char*>(in) + in_bytes(shards.offset(rank)); }
  void* out_of(int rank) const { return static_cast<char*>(out) + (all ? out_bytes(shards.offset(rank)) : 0); }
  uint64_t in_bytes(int64_t elements) const { return static_cast<uint64_t>(elements) * size_of(dtype); }
  uint64_t out_bytes(int64_t elements) const { return static_cast<uint64_t>(elements) * size_of(out_dtype); }
};

// The clock of one call: warns half-way, throws Error peer at its deadline.
class Watch {
 public:
  using Clock = std::chrono::steady_clock;
  Watch(const CallRecord& call, int rank, double timeout);
  void check(const std::vector<int>& awaited);  // the ranks still waited for; empty: unknown
  Clock::time_point next() const { return warned_ ? deadline_ : warning_; }  // when check has something to do
  const CallRecord& call() const { return call_; }

 private:
  const CallRecord call_;
  const int rank_;
  const double timeout_;
  const Clock::time_point begin_, warning_, deadline_;
  bool warned_ = false;
};

class Transport {
 public:
  virtual ~Transport() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual int world_rank(int rank) const = 0;  // what messages name
  virtual int group() const = 0;               // 0: the world

  // Sends send[p] to every rank p and receives receive[p] from it; the own entry is copied.
  virtual void exchange(const Pieces& send, const Pieces& receive, Watch& watch) = 0;
  // Rule 3 of the numerics, by the owner of each shard.
  virtual std::optional<NonFinite> reduce_ordered(const ReduceJob& job, Watch& watch) = 0;
  virtual void reduce_native(const ReduceJob& job, Watch& watch) = 0;
  // Whether pieces have memory behind them; a group that is only thought of keeps books.
  virtual bool moves_data() const { return true; }
  // An emulated link sleeps for as long as these bytes and messages would take.
  virtual void emulate_link(uint64_t, int) {}
  // The group of those with equal colour; colours[p] and keys[p] of every rank p are known to all.
  virtual std::unique_ptr<Transport> split(const std::vector<int>& colours, const std::vector<int>& keys,
                                           int group) = 0;

  // From any thread. fail: the first message given by any rank ends all calls of all ranks that share this process.
  virtual void fail(const std::string& message) noexcept = 0;
  virtual void abort(const std::string& message, int exit_code) = 0;
  virtual FlightBoard* board(int world_rank) = 0;  // null where it can't be seen from here
  virtual int world_size() const = 0;
};

// One call on its way: how ranks compare it, what it moves, and what to run on the comm stream.
struct CommJob {
  CallRecord record;
  Traffic traffic;
  int messages = 1;  // one after another, on the longest path: latencies of an emulated link
  std::function<std::optional<NonFinite>(Transport&, Watch&)> run;
};

// What the groups of one rank share.
struct CommShared {
  CommShared(Device device, Checks checks, double timeout)
      : device(device), checks(checks), timeout(timeout), compute(Stream::compute(device)), stream(device, "comm") {}
  const Device device;
  const Checks checks;
  const double timeout;
  TrafficLedger traffic;
  int groups = 1;  // numbers given to groups so far
  Stream compute, stream;
};

}  // namespace sg::dist

// Ranks that are threads of one process: they read each other's memory directly.
#pragma once
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "dist/comm/transport.h"

namespace sg::dist {

// One message from a rank to another, in the sender's memory until the receiver has taken it.
struct Slot {
  enum class State : uint8_t { free, posted, taken };  // taken: the receiver is at work on it
  State state = State::free;
  const CallRecord* call = nullptr;  // the sender's
  void* data = nullptr;
  void* result = nullptr;  // an all-reduce: where the receiver writes the sum for the sender
  uint64_t bytes = 0;
};

struct ThreadGroup {
  std::vector<int> world_ranks;  // by rank of the group
  std::vector<Slot> slots;       // [from · size + to]
};

// Everything that thread ranks share; one mutex guards it all, memory is copied outside of it.
struct ThreadWorld {
  ThreadWorld(int ranks, double bandwidth, double latency);
  void fail(int rank,
            const std::string& message,
            std::exception_ptr error = nullptr) noexcept;  // the first one counts

  const int ranks;
  const double bandwidth, latency;
  const std::unique_ptr<FlightBoard[]> boards;
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<uint64_t> busy;  // by rank: how often it has said that it is busy
  bool failed = false;
  int failed_rank = -1;
  std::string message;
  std::exception_ptr error;
  std::map<std::pair<int, int>, std::shared_ptr<ThreadGroup>>
      groups;  // (number, colour) → made by the first rank there
};

class ThreadTransport final : public Transport, public HostChannel {
 public:
  ThreadTransport(std::shared_ptr<ThreadWorld> world,
                  std::shared_ptr<ThreadGroup> group,
                  int rank,
                  int number);

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(group_->world_ranks.size()); }
  int world_rank(int rank) const override { return group_->world_ranks[rank]; }
  int group() const override { return number_; }
  int world_size() const override { return world_->ranks; }
  FlightBoard* board(int world_rank) override { return &world_->boards[world_rank]; }

  HostChannel& host() override { return *this; }  // both copy from thread to thread
  void exchange(const Pieces& send, const Pieces& receive, Watch& watch) override;
  std::optional<NonFinite> reduce_ordered(const ReduceJob& job, Watch& watch) override;
  void reduce_native(const ReduceJob& job, Watch& watch) override;
  void emulate_link(uint64_t bytes, int messages) override;
  void say_busy() override;
  std::unique_ptr<Transport> split(const std::vector<int>& colours,
                                   const std::vector<int>& keys,
                                   int group) override;
  void fail(const std::string& message) noexcept override;
  void abort(const std::string& message, int exit_code) override;

 private:
  class Posted;
  class Taken;
  Slot& slot(int from, int to) { return group_->slots[from * size() + to]; }
  void take_terms(Taken& taken, Watch& watch);
  template <class Awaited>
  void await(std::unique_lock<std::mutex>& lock, Watch& watch, const Awaited& awaited);

  const std::shared_ptr<ThreadWorld> world_;
  const std::shared_ptr<ThreadGroup> group_;
  const int rank_, number_;
};

}  // namespace sg::dist

// Ranks that are processes, joined by MPI. All its calls are made by tasks of the comm stream and
// none of them blocks: every wait polls, so that it has a deadline. Only the end of a job after a
// failure is called from elsewhere.
#pragma once
#include <mpi.h>

#include <atomic>
#include <memory>
#include <vector>

#include "core/processors.h"
#include "core/tensor.h"
#include "dist/comm/transport.h"

namespace sg::dist {

// Throws Error peer, naming the function, unless MPI says that it worked.
void mpi_must(int error, const char* function);

// The process's share in MPI: from its start to its end, sums of 16-bit floats, boards that a
// host's processes share.
class MpiWorld {
 public:
  MpiWorld();   // on the comm stream
  ~MpiWorld();  // on the comm stream
  MpiWorld(const MpiWorld&) = delete;
  MpiWorld& operator=(const MpiWorld&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  int rank_on_this_host() const { return host_rank_; }
  // What the launcher lets each rank of this host run on.
  std::vector<Processors> processors_on_this_host() const;
  FlightBoard* board(int rank) const { return boards_[rank]; }
  MPI_Op sum_of(DType dtype) const;

  // Ends the job from any thread, once the comm stream has left MPI (it notices within a poll).
  [[noreturn]] void abort(int exit_code);

  // While one lives the comm stream is inside MPI. Throws, there and at each poll, once the job is
  // being ended.
  class Inside {
   public:
    explicit Inside(MpiWorld& world) : world_(world) {
      world_.inside_ = true;
      poll();
    }
    ~Inside() { world_.inside_ = false; }
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;
    void poll() const {
      check(ErrorKind::peer, !world_.ending_, "mpi: this rank has failed, the job ends");
    }

   private:
    MpiWorld& world_;
  };
  void fail() { failed_ = true; }  // MPI can't be ended in order any more
  bool failed() const { return failed_; }

 private:
  void share_boards();

  int rank_ = 0, size_ = 1, host_rank_ = 0, host_size_ = 1;
  MPI_Comm host_ = MPI_COMM_NULL;
  MPI_Win window_ = MPI_WIN_NULL;
  MPI_Op sum_f16_ = MPI_OP_NULL, sum_bf16_ = MPI_OP_NULL;
  std::vector<FlightBoard*> boards_;  // by rank; null on other hosts
  std::atomic<bool> inside_{false}, ending_{false}, failed_{false};
};

class MpiTransport final : public Transport, public HostChannel {
 public:
  MpiTransport(std::shared_ptr<MpiWorld> world,
               MPI_Comm comm,
               std::vector<int> world_ranks,
               int number);
  ~MpiTransport() override;

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(world_ranks_.size()); }
  int world_rank(int rank) const override { return world_ranks_[rank]; }
  int group() const override { return number_; }
  int world_size() const override { return world_->size(); }
  FlightBoard* board(int world_rank) override { return world_->board(world_rank); }

  HostChannel& host() override { return *this; }  // MPI moves both alike
  void exchange(const Pieces& send, const Pieces& receive, Watch& watch) override;
  std::optional<NonFinite> reduce_ordered(const ReduceJob& job, Watch& watch) override;
  void reduce_native(const ReduceJob& job, Watch& watch) override;
  std::unique_ptr<Transport> split(const std::vector<int>& colours,
                                   const std::vector<int>& keys,
                                   int group) override;
  bool splits_at_once() const override { return false; }
  void say_busy() override;
  void fail(const std::string&) noexcept override { world_->fail(); }
  void abort(const std::string&, int exit_code) override { world_->abort(exit_code); }

 private:
  // Requests under way, each with the rank at its other end and, of receives, the bytes it must
  // bring.
  struct Requests {
    std::vector<MPI_Request> handles;
    std::vector<int> peers;  // −1: all
    std::vector<int> bytes;  // −1: not a receive
    MPI_Request* add(int peer, int bytes);
  };
  // The records of this call that travel with its first move.
  struct Comparison {
    std::vector<int> ranks;           // of the group: all that are party to the call
    std::vector<CallRecord> records;  // theirs
    Requests requests;
  };
  void post(Comparison& comparison, Watch& watch);
  void finish(Comparison& comparison, Watch& watch, const MpiWorld::Inside& inside);
  void compare(Watch& watch,
               const MpiWorld::Inside& inside);  // where the move itself can't carry records
  void send(Requests& requests, int to, int tag, const Piece& piece);
  void receive(Requests& requests, int from, int tag, const Piece& piece);
  void finish(Requests& requests,
              Watch& watch,
              const MpiWorld::Inside& inside);  // and empties them
  std::vector<int> awaited(const Requests& requests) const;
  [[noreturn]] void explain(int error,
                            const Requests& requests,
                            const std::vector<MPI_Status>& statuses,
                            const Watch& watch);
  void native_all_reduce(const ReduceJob& job, Watch& watch);
  void native_reduce_scatter(const ReduceJob& job, const View& out, Watch& watch);

  const std::shared_ptr<MpiWorld> world_;
  MPI_Comm comm_;
  const std::vector<int> world_ranks_;
  const int number_;
  int rank_ = 0;
  Tensor incoming_;  // the ordered reduction's buffers: two slices from every rank, filled and
                     // summed up in turn
};

}  // namespace sg::dist

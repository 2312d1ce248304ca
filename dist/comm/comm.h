// Communication between ranks. A call is named, numbered, booked to the byte (traffic.h) and has a
// deadline; it runs on the comm stream while the caller computes on. One thread of a rank makes its
// calls; all ranks of a group make the same calls in the same order. A failure anywhere ends the
// group: every pending and later call throws, and the first error is the one told.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/stream.h"
#include "core/tensor.h"
#include "dist/comm/traffic.h"

namespace sg::dist {

struct Call {
  std::string name;  // "ddp.bucket.3"; the same on every rank
  Phase phase = Phase::step;
};

// How a flat tensor is dealt to ranks: contiguous ranges in rank order; counts may differ and may
// be 0.
class Shards {
 public:
  Shards() = default;
  explicit Shards(std::vector<int64_t> counts);  // elements by rank, none negative
  // Equal within one chunk; ranks first, first + 1, … take the odd chunks, the last chunk may be
  // short.
  static Shards even(int64_t elements, int ranks, int64_t chunk = 1, int first = 0);
  static Shards whole(int64_t elements, int ranks, int owner);  // everything is one rank's

  int ranks() const { return static_cast<int>(counts_.size()); }
  int64_t total() const { return offsets_.empty() ? 0 : offsets_.back() + counts_.back(); }
  int64_t count(int rank) const { return counts_[rank]; }
  int64_t offset(int rank) const { return offsets_[rank]; }
  int64_t largest() const;  // of the counts
  // View of `rank`'s range of a one-dimensional tensor.
  Tensor of(const Tensor& flat, int rank) const;
  friend bool operator==(const Shards&, const Shards&) = default;

 private:
  std::vector<int64_t> counts_, offsets_;
};

// ordered: the owner of a shard adds all contributions in f32 as a fixed tree in rank order, so the
// bits don't depend on the partition. ring: neighbours pass partial sums on, 2(N−1) steps. native:
// the transport's own sum.
enum class Algorithm : uint8_t { ordered, ring, native };
const char* name_of(Algorithm algorithm);
Algorithm parse_algorithm(const std::string& text);  // anything else is a usage error

// Values travel in the input's dtype and are rounded to the output's (the same, or f32) once.
struct Reduction {
  float scale = 1;  // multiplies the sum, once, before rounding
  Algorithm algorithm = Algorithm::ordered;
};

// A contribution to a reduction that wasn't finite: element `offset` of the reduced tensor.
struct NonFinite {
  int rank;  // −1: every contribution was finite and their sum overflowed
  int64_t offset;
};

// A handle to a call under way; copies share it. A default-made one is done.
class Work {
 public:
  Work() = default;
  bool done() const;
  // Returns when the result is there; rethrows the call's error. Time spent here is booked as
  // exposed.
  void wait();
  void then(std::function<void()> action);  // runs once, in wait(), on the waiting thread
  const Event& event() const;  // for streams, and for Storage::used_until before a slot is released

  // After wait(): what a reduction met that wasn't finite. ordered: each owner tells of all ranks'
  // values in its shard; ring, native: each rank tells of its own contribution. A group of one that
  // reduces in place looks at nothing.
  std::optional<NonFinite> nonfinite() const;
  double seconds() const;  // after wait(): time on the comm stream

  struct State;

 private:
  friend class Comm;
  std::shared_ptr<State> state_;
};

enum class Checks : uint8_t {
  never,
  always
};  // whether ranks compare each call before it touches data

class Transport;
struct CommShared;
struct CommJob;

// Tensors are dense and lie on device() or host memory; "flat" ones are taken as one-dimensional
// whatever their shape. A call keeps its tensors alive; slots must stay resident and contents
// untouched until it is done. Errors: usage, at once, for what one rank can see (operation, name,
// sizes); peer, from wait(), for what concerns others (rank, operation, name, number).
class Comm {
 public:
  explicit Comm(std::unique_ptr<Transport> transport, std::shared_ptr<CommShared> shared);
  ~Comm();
  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;

  int rank() const;
  int size() const;
  Device device() const;  // where this rank computes
  Stream& stream();       // the comm stream, shared by the groups of a rank
  TrafficLedger& traffic();

  // out (= in, or of its size) = scale · the sum over ranks; the same bits on every rank.
  Work all_reduce(const Call& call,
                  const Tensor& in,
                  const Tensor& out,
                  const Reduction& reduction = {});
  Work all_reduce(const Call& call, const Tensor& inout, const Reduction& reduction = {});
  // out: this rank's shard of scale · the sum over ranks. `in` has shards.total() elements and may
  // contain `out` at its place.
  Work reduce_scatter(const Call& call,
                      const Tensor& in,
                      const Shards& shards,
                      const Tensor& out,
                      const Reduction& reduction = {});
  // out: every rank's shard, in rank order; `shard` may be its own place in it.
  Work all_gather(const Call& call, const Tensor& shard, const Shards& shards, const Tensor& out);
  Work broadcast(const Call& call, const Tensor& inout, int root);
  Work gather(const Call& call,
              const Tensor& shard,
              const Shards& shards,
              const Tensor& out,
              int root);  // out: only at root
  Work scatter(const Call& call,
               const Tensor& in,
               const Shards& shards,
               const Tensor& shard,
               int root);  // in: only at root
  // Rank p's range of `send` goes to rank p; what comes from p lies in p's range of `receive`.
  Work all_to_all(const Call& call,
                  const Tensor& in,
                  const Shards& send,
                  const Tensor& out,
                  const Shards& receive);
  // Done when the receiver has it: ranks that send to each other must not both send first.
  Work send(const Call& call, const Tensor& x, int to);
  Work recv(const Call& call, const Tensor& x, int from);
  Work barrier(const Call& call) { return barrier(call, 0); }

  // Small messages between hosts, of any length; returns every rank's, in rank order.
  std::vector<std::string> all_gather_bytes(const Call& call, std::string_view bytes);
  // Refuses to go on unless every rank has the same fields and values: the error names the first
  // field that differs and both ranks' values.
  void agree(const Call& call, const std::map<std::string, std::string>& fields);

  // The ranks of equal colour become a group, ordered by key, then rank. Collective.
  std::unique_ptr<Comm> split(int colour, int key);

  // The last call of a rank's program, which launch and run_threads make for it: returns when every
  // rank has made it, without a deadline. A rank that still communicates is told at once that this
  // one has returned.
  void leave();

  // While one lives, this rank says to those who wait for it that it is at work on something that
  // isn't communication, such as files: the time-out is for silence. From the thread that makes the
  // group's calls. Between processes the signs travel among the records of calls, so Checks::never
  // is without them.
  class Busy {
   public:
    explicit Busy(Comm& comm);
    ~Busy();
    Busy(const Busy&) = delete;
    Busy& operator=(const Busy&) = delete;

   private:
    struct State;
    std::unique_ptr<State> state_;
  };

  // The last calls of every rank that can be seen from here, for messages about failures; empty
  // where none made any.
  std::string flight_record() const;
  // This rank failed: peers' calls throw, or end their processes, with `message`. Does not return
  // under MPI.
  void abort(const std::string& message, int exit_code);

 private:
  Work issue(const Call& call, CommJob job);
  Work barrier(const Call& call, double timeout);  // seconds; 0: the group's
  CommJob reduction(const Call& call,
                    Operation operation,
                    const Tensor& in,
                    const Tensor& out,
                    const Shards& shards,
                    const Reduction& options);
  Tensor ring_buffers(const Shards& shards, DType dtype);

  std::unique_ptr<Transport> transport_;
  std::shared_ptr<CommShared> shared_;
  Tensor ring_;                                        // what rings work in, one call after another
  int64_t sequence_ = 0;                               // of the group's collectives
  std::vector<std::pair<int64_t, int64_t>> messages_;  // sent to and received from each rank
};

}  // namespace sg::dist

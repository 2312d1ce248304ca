// A call as ranks compare it and as the flight record keeps it.
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "dist/comm/comm.h"

namespace sg::dist {

// Plain data of fixed size: it travels between ranks and lies in memory that processes share.
struct CallRecord {
  enum class State : uint8_t {
    running,
    done,
    busy
  };                     // busy: no call, the rank is at work on something else
  int64_t sequence = 0;  // of the group; between two ranks: of the messages from one to the other
  int64_t elements = 0;
  uint64_t layout = 0;  // hash of the shards
  int64_t begun = 0;    // nanoseconds of the steady clock, which the processes of a host share
  float scale = 1;
  int16_t root = -1, peer = -1;  // ranks of the group
  int16_t group = 0;             // 0: the world
  Operation operation = Operation::barrier;
  Phase phase = Phase::step;
  DType dtype = DType::u8, out_dtype = DType::u8;
  Algorithm algorithm = Algorithm::ordered;
  State state = State::running;
  std::array<char, 78> name{};  // cut at the end where it is longer

  void set_name(const std::string& text);
  std::string describe() const;  // all_reduce "ddp.bucket.3" of 4096 f32
  bool ends_program() const;     // Comm::leave
};
static_assert(sizeof(CallRecord) == 128 && std::is_trivially_copyable_v<CallRecord>);

inline constexpr const char* end_of_program =
    "the end of the program";  // the name of Comm::leave's call

uint64_t hash_of(const Shards& shards);

// Empty where the calls agree, else what differs first: "operation", "name", "number of elements",
// …
std::string difference(const CallRecord& a, const CallRecord& b);

// The last calls of one rank: written by its comm stream, read by whoever reports a failure,
// without locks (a record that is just being overwritten may read torn). Zeroed memory is an empty
// board.
class FlightBoard {
 public:
  static constexpr uint64_t capacity = 32;

  void begin(const CallRecord& record);
  void end();
  std::vector<CallRecord> read() const;  // oldest first

 private:
  using Words = std::array<uint64_t, sizeof(CallRecord) / 8>;
  std::atomic<uint64_t> count_{0};
  std::array<std::array<std::atomic<uint64_t>, sizeof(CallRecord) / 8>, capacity> entries_{};
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);

// "  rank 1: #7 all_reduce "ddp.bucket.3" of 4096 f32, for 2.31 s" and the calls before it, a line
// each; nothing where there were none.
std::string format_board(int rank, const FlightBoard& board);

int64_t steady_nanoseconds();

}  // namespace sg::dist

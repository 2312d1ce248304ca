// The traffic ledger: what each rank sent and received, in bytes, by the operation its caller asked
// for and the phase of the run.
#pragma once
#include <array>
#include <cstdint>
#include <mutex>

namespace sg::dist {

enum class Operation : uint8_t {
  all_reduce,
  reduce_scatter,
  all_gather,
  broadcast,
  gather,
  scatter,
  all_to_all,
  send,
  recv,
  barrier
};
inline constexpr int operation_count = 10;
const char* name_of(Operation operation);

// step: gradients and parameters only; metrics: losses, norms, flags, data; check: the comparison
// of calls between ranks.
enum class Phase : uint8_t { setup, step, metrics, check, eval, save };
inline constexpr int phase_count = 6;
const char* name_of(Phase phase);

struct Traffic {
  uint64_t calls = 0, sent = 0, received = 0,
           padding = 0;  // padding: bytes of sent and received that carry nothing
  Traffic& operator+=(const Traffic& other);
  friend bool operator==(const Traffic&, const Traffic&) = default;
};

constexpr int index_of(Operation operation) {
  return static_cast<int>(operation);
}
constexpr int index_of(Phase phase) {
  return static_cast<int>(phase);
}

// operation → phase → traffic.
using TrafficTable = std::array<std::array<Traffic, phase_count>, operation_count>;

// The ledger of one rank, shared by its groups. Bytes are booked when a call is made, times when it
// has run. Thread-safe.
class TrafficLedger {
 public:
  void add(Operation operation, Phase phase, const Traffic& traffic);
  void add_busy(double seconds);     // the comm stream worked on a call or waited in it for peers
  void add_exposed(double seconds);  // a compute thread waited for a call
  void reset();

  TrafficTable table() const;
  Traffic of(Operation operation, Phase phase) const;
  Traffic total(Phase phase) const;
  double busy_seconds() const;
  double exposed_seconds() const;

 private:
  mutable std::mutex mutex_;
  TrafficTable table_{};
  double busy_ = 0, exposed_ = 0;
};

}  // namespace sg::dist

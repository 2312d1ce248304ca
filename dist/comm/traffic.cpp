#include "dist/comm/traffic.h"

namespace sg::dist {

const char* name_of(Operation operation) {
  constexpr const char* names[operation_count] = {"all_reduce",
                                                  "reduce_scatter",
                                                  "all_gather",
                                                  "broadcast",
                                                  "gather",
                                                  "scatter",
                                                  "all_to_all",
                                                  "send",
                                                  "recv",
                                                  "barrier"};
  return names[static_cast<int>(operation)];
}

const char* name_of(Phase phase) {
  constexpr const char* names[phase_count] = {"setup", "step", "metrics", "check", "eval", "save"};
  return names[static_cast<int>(phase)];
}

Traffic& Traffic::operator+=(const Traffic& other) {
  calls += other.calls, sent += other.sent, received += other.received, padding += other.padding;
  return *this;
}

void TrafficLedger::add(Operation operation, Phase phase, const Traffic& traffic) {
  std::lock_guard lock(mutex_);
  table_[static_cast<size_t>(operation)][static_cast<size_t>(phase)] += traffic;
}

void TrafficLedger::add_busy(double seconds) {
  std::lock_guard lock(mutex_);
  busy_ += seconds;
}

void TrafficLedger::add_exposed(double seconds) {
  std::lock_guard lock(mutex_);
  exposed_ += seconds;
}

void TrafficLedger::reset() {
  std::lock_guard lock(mutex_);
  table_ = {};
  busy_ = exposed_ = 0;
}

TrafficTable TrafficLedger::table() const {
  std::lock_guard lock(mutex_);
  return table_;
}

Traffic TrafficLedger::of(Operation operation, Phase phase) const {
  return table()[static_cast<size_t>(operation)][static_cast<size_t>(phase)];
}

Traffic TrafficLedger::total(Phase phase) const {
  Traffic sum;
  for (const auto& phases : table())
    sum += phases[static_cast<size_t>(phase)];
  return sum;
}

double TrafficLedger::busy_seconds() const {
  std::lock_guard lock(mutex_);
  return busy_;
}

double TrafficLedger::exposed_seconds() const {
  std::lock_guard lock(mutex_);
  return exposed_;
}

}  // namespace sg::dist

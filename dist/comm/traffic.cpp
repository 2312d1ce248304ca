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
  return names[index_of(operation)];
}

const char* name_of(Phase phase) {
  constexpr const char* names[phase_count] = {"setup", "step", "metrics", "check", "eval", "save"};
  return names[index_of(phase)];
}

Traffic& Traffic::operator+=(const Traffic& other) {
  calls += other.calls, sent += other.sent, received += other.received, padding += other.padding;
  return *this;
}

void TrafficLedger::add(Operation operation, Phase phase, const Traffic& traffic) {
  std::lock_guard lock(mutex_);
  table_[index_of(operation)][index_of(phase)] += traffic;
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
  return table()[index_of(operation)][index_of(phase)];
}

Traffic TrafficLedger::total(Phase phase) const {
  Traffic sum;
  for (const auto& phases : table())
    sum += phases[index_of(phase)];
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

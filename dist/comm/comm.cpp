#include "dist/comm/comm.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "core/error.h"
#include "core/trace.h"
#include "dist/comm/transport.h"

namespace sg::dist {
namespace {

double seconds_since(Watch::Clock::time_point begin) {
  return std::chrono::duration<double>(Watch::Clock::now() - begin).count();
}

}  // namespace

// ---- groups

Comm::Comm(std::unique_ptr<Transport> transport, std::shared_ptr<CommShared> shared)
    : transport_(std::move(transport)), shared_(std::move(shared)), messages_(size()) {}

// Calls under way use the transport; their errors are for those who wait for them. What the
// transport has of MPI ends on the thread where it began.
Comm::~Comm() {
  try {
    shared_->stream.enqueue("close", [this] { transport_.reset(); });
    shared_->stream.synchronize();
  } catch (...) {
  }
}

int Comm::rank() const {
  return transport_->rank();
}
int Comm::size() const {
  return transport_->size();
}
Device Comm::device() const {
  return shared_->device;
}
Stream& Comm::stream() {
  return shared_->stream;
}
TrafficLedger& Comm::traffic() {
  return shared_->traffic;
}

std::unique_ptr<Comm> Comm::split(int colour, int key) {
  struct Request {
    int colour, key, groups;
  };
  const Request mine{colour, key, shared_->groups};
  std::vector<int> colours, keys;
  for (const std::string& bytes : all_gather_bytes(
           {"split", Phase::setup}, {reinterpret_cast<const char*>(&mine), sizeof mine})) {
    Request theirs;
    std::memcpy(&theirs, bytes.data(), sizeof theirs);
    colours.push_back(theirs.colour), keys.push_back(theirs.key);
    shared_->groups = std::max(shared_->groups, theirs.groups);
  }
  const int number = shared_->groups++;
  std::unique_ptr<Transport> part;
  shared_->stream.enqueue("split", [&] { part = transport_->split(colours, keys, number); });
  if (transport_->splits_at_once())
    shared_->stream.synchronize();
  else
    wait_within(shared_->stream.record(), shared_->timeout, "split");
  return std::make_unique<Comm>(std::move(part), shared_);
}

std::string Comm::flight_record() const {
  std::string text;
  for (int rank = 0; rank < transport_->world_size(); ++rank) {
    const FlightBoard* board = transport_->board(rank);
    text += board ? format_board(rank, *board) : fmt::format("  rank {}: on another host\n", rank);
  }
  return text.empty() ? text : "last calls, latest first:\n" + text;
}

void Comm::leave() {
  constexpr double forever =
      1e300;  // others may compute or write long after this rank has done its part
  barrier({end_of_program, Phase::setup}, forever).wait();
}

void wait_within(const Event& event, double timeout, const char* what) {
  const auto begin = Watch::Clock::now();
  while (!event.done()) {
    check(ErrorKind::peer,
          seconds_since(begin) < timeout,
          "{}: not every rank has come within {:.3g} s (--comm-timeout)",
          what,
          timeout);
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  event.wait();
}

void Comm::abort(const std::string& message, int exit_code) {
  transport_->abort(message, exit_code);
}

// ---- one call, from its issue to its end

struct Work::State {
  std::shared_ptr<CommShared> shared;
  Event event;
  std::optional<NonFinite> nonfinite;
  double seconds = 0;
  std::vector<std::function<void()>> actions;
};

namespace {

// Ranks tell each other with their data what they are about to do: records by rank, booked as
// checks.
Traffic traffic_of_comparison(const CallRecord& mine, int ranks) {
  const auto others = static_cast<uint64_t>(mine.peer >= 0 ? 1 : ranks - 1);
  return {1, others * sizeof mine, others * sizeof mine, 0};
}

std::optional<NonFinite> run(Transport& transport,
                             const CommJob& job,
                             CommShared& shared,
                             bool compare) {
  const int rank = transport.world_rank(transport.rank());
  FlightBoard& board = *transport.board(rank);
  CallRecord record = job.record;
  record.begun = steady_nanoseconds();
  board.begin(record);
  Watch watch(record, rank, job.timeout > 0 ? job.timeout : shared.timeout, compare);
  if (compare)
    shared.traffic.add(
        record.operation, Phase::check, traffic_of_comparison(record, transport.size()));
  try {
    const auto nonfinite = job.run(transport, watch);
    if (transport.size() > 1)
      transport.emulate_link(std::max(job.traffic.sent, job.traffic.received), job.messages);
    board.end();
    return nonfinite;
  } catch (const std::exception& error) {
    transport.fail(error.what());
    throw;
  }
}

}  // namespace

Work Comm::issue(const Call& call, CommJob job) {
  const trace::Span issued("issue");
  CallRecord& record = job.record;
  record.set_name(call.name);
  record.phase = call.phase;
  record.group = static_cast<int16_t>(transport_->group());
  if (record.peer < 0) {
    record.sequence = sequence_++;
  } else {
    auto& [sent, received] = messages_[record.peer];
    record.sequence = record.operation == Operation::send ? sent++ : received++;
  }
  const bool compare = size() > 1 && shared_->checks == Checks::always;
  shared_->traffic.add(record.operation, call.phase, job.traffic);

  Work work;
  work.state_ = std::make_shared<Work::State>();
  work.state_->shared = shared_;
  const char* name = name_of(record.operation);
  const std::vector<Tensor> used = job.tensors;
  shared_->stream.wait(
      shared_->compute.record());  // the call begins when what was computed so far is there
  shared_->stream.enqueue(name, [this, job = std::move(job), state = work.state_, compare] {
    const auto begin = Watch::Clock::now();
    state->nonfinite = run(*transport_, job, *shared_, compare);
    state->seconds = seconds_since(begin);
    shared_->traffic.add_busy(state->seconds);
  });
  work.state_->event = shared_->stream.record();
  for (const Tensor& tensor : used) {
    if (tensor.defined())
      tensor.storage()->used_until(work.state_->event);
  }
  return work;
}

bool Work::done() const {
  return !state_ || state_->event.done();
}

void Work::wait() {
  if (!state_)
    return;
  if (!state_->event.done()) {
    const auto begin = Watch::Clock::now();
    state_->event.wait();
    // Of the call's own time: what came before it in the stream is exposed where that is waited
    // for.
    state_->shared->traffic.add_exposed(std::min(seconds_since(begin), state_->seconds));
  }
  state_->event.wait();
  for (auto& action : std::exchange(state_->actions, {}))
    action();
}

void Work::then(std::function<void()> action) {
  if (state_)
    state_->actions.push_back(std::move(action));
  else
    action();
}

const Event& Work::event() const {
  static const Event passed;
  return state_ ? state_->event : passed;
}

std::optional<NonFinite> Work::nonfinite() const {
  return state_ ? state_->nonfinite : std::nullopt;
}
double Work::seconds() const {
  return state_ ? state_->seconds : 0;
}

}  // namespace sg::dist

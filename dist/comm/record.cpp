#include "dist/comm/record.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string_view>

namespace sg::dist {

void CallRecord::set_name(const std::string& text) {
  name = {};
  std::copy_n(text.begin(), std::min(text.size(), name.size() - 1), name.begin());
}

bool CallRecord::ends_program() const {
  return operation == Operation::barrier && std::string_view(name.data()) == end_of_program;
}

std::string CallRecord::describe() const {
  std::string text = fmt::format("{} \"{}\"", name_of(operation), name.data());
  if (elements > 0)
    text += fmt::format(" of {} {}", elements, name_of(dtype));
  if (operation == Operation::send)
    text += fmt::format(" to rank {}", peer);
  if (operation == Operation::recv)
    text += fmt::format(" from rank {}", peer);
  if (group != 0)
    text += fmt::format(" in group {}", group);
  return text;
}

uint64_t hash_of(const Shards& shards) {
  uint64_t hash = 14695981039346656037ull;  // FNV-1a over the counts
  for (int rank = 0; rank < shards.ranks(); ++rank) {
    hash = (hash ^ static_cast<uint64_t>(shards.count(rank))) * 1099511628211ull;
  }
  return hash;
}

std::string difference(const CallRecord& a, const CallRecord& b) {
  if (a.operation != b.operation)
    return "operation";
  if (a.name != b.name)
    return "name";
  if (a.sequence != b.sequence)
    return "sequence number";
  if (a.elements != b.elements)
    return "number of elements";
  if (a.dtype != b.dtype)
    return "dtype";
  if (a.out_dtype != b.out_dtype)
    return "dtype of the result";
  if (a.layout != b.layout)
    return "shards";
  if (a.root != b.root)
    return "root";
  if (a.algorithm != b.algorithm)
    return "algorithm";
  if (std::memcmp(&a.scale, &b.scale, sizeof a.scale) != 0)
    return "scale";
  return a.phase != b.phase ? "phase" : "";
}

void FlightBoard::begin(const CallRecord& record) {
  const uint64_t count = count_.load(std::memory_order_relaxed);
  auto& entry = entries_[count % capacity];
  const auto words = std::bit_cast<Words>(record);
  for (size_t i = 0; i < words.size(); ++i)
    entry[i].store(words[i], std::memory_order_relaxed);
  count_.store(count + 1, std::memory_order_release);
}

void FlightBoard::end() {
  auto& entry = entries_[(count_.load(std::memory_order_relaxed) - 1) % capacity];
  Words words;
  for (size_t i = 0; i < words.size(); ++i)
    words[i] = entry[i].load(std::memory_order_relaxed);
  auto record = std::bit_cast<CallRecord>(words);
  record.state = CallRecord::State::done;
  record.begun = steady_nanoseconds() - record.begun;  // of a finished call: how long it took
  words = std::bit_cast<Words>(record);
  for (size_t i = 0; i < words.size(); ++i)
    entry[i].store(words[i], std::memory_order_relaxed);
}

std::vector<CallRecord> FlightBoard::read() const {
  const uint64_t count = count_.load(std::memory_order_acquire);
  std::vector<CallRecord> records;
  for (uint64_t i = count > capacity ? count - capacity : 0; i < count; ++i) {
    Words words;
    for (size_t w = 0; w < words.size(); ++w)
      words[w] = entries_[i % capacity][w].load(std::memory_order_relaxed);
    records.push_back(std::bit_cast<CallRecord>(words));
    records.back().name.back() = '\0';
  }
  return records;
}

std::string format_board(int rank, const FlightBoard& board) {
  const std::vector<CallRecord> records = board.read();
  std::string text;
  for (auto record = records.rbegin(); record != records.rend(); ++record) {
    const bool running = record->state == CallRecord::State::running;
    const int64_t nanoseconds = running ? steady_nanoseconds() - record->begun : record->begun;
    text += fmt::format("  rank {}: #{} {}, {} {:.3f} ms\n",
                        rank,
                        record->sequence,
                        record->describe(),
                        running ? "running for" : "done in",
                        static_cast<double>(nanoseconds) / 1e6);
  }
  return text;
}

int64_t steady_nanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace sg::dist

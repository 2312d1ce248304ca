#include "core/trace.h"

#include <chrono>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <vector>

#include "core/error.h"
#include "core/io/output_file.h"

namespace sg::trace {
namespace detail {

std::atomic<bool> recording{false};

uint64_t now() {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                   std::chrono::steady_clock::now().time_since_epoch())
                                   .count());
}

}  // namespace detail

namespace {

struct Record {
  const char* name;
  uint64_t begin, end;
};

// One per thread that ever recorded; kept by the recorder after its thread has ended.
struct Row {
  std::mutex mutex;
  int rank = 0, number = 0;
  std::string name = "main";
  std::vector<Record> records;
};

struct Recorder {
  std::mutex mutex;
  std::string file;
  uint64_t begin = 0;
  std::vector<std::shared_ptr<Row>> rows;
};
Recorder& recorder() {
  static auto* instance = new Recorder;
  return *instance;
}

Row& row() {
  thread_local std::shared_ptr<Row> mine = [] {
    auto made = std::make_shared<Row>();
    std::lock_guard lock(recorder().mutex);
    made->number = static_cast<int>(recorder().rows.size());
    recorder().rows.push_back(made);
    return made;
  }();
  return *mine;
}

}  // namespace

namespace detail {
void add(const char* name, uint64_t begin, uint64_t end) {
  Row& r = row();
  std::lock_guard lock(r.mutex);
  r.records.push_back({name, begin, end});
}
}  // namespace detail

bool enabled() {
  return detail::recording.load(std::memory_order_relaxed);
}

void set_rank(int rank) {
  std::lock_guard lock(row().mutex);
  row().rank = rank;
}

void name_thread(const std::string& name) {
  std::lock_guard lock(row().mutex);
  row().name = name;
}

void start(const std::string& file) {
  std::lock_guard lock(recorder().mutex);
  check(!enabled(), "trace: {} is already being recorded", recorder().file);
  recorder().file = file;
  recorder().begin = detail::now();
  detail::recording = true;
}

void stop() {
  if (!enabled())
    return;
  detail::recording = false;
  std::lock_guard lock(recorder().mutex);
  auto events = nlohmann::json::array();
  for (auto& r : recorder().rows) {
    std::lock_guard row_lock(r->mutex);
    events.push_back({{"ph", "M"},
                      {"name", "thread_name"},
                      {"pid", r->rank},
                      {"tid", r->number},
                      {"args", {{"name", r->name}}}});
    for (const Record& record : r->records) {
      if (record.begin < recorder().begin)
        continue;
      events.push_back({{"ph", "X"},
                        {"name", record.name},
                        {"pid", r->rank},
                        {"tid", r->number},
                        {"ts", static_cast<double>(record.begin - recorder().begin) / 1e3},
                        {"dur", static_cast<double>(record.end - record.begin) / 1e3}});
    }
    r->records.clear();
  }
  write_output(recorder().file,
               nlohmann::json{{"traceEvents", events}, {"displayTimeUnit", "ms"}}.dump());
}

}  // namespace sg::trace

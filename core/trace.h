// Recording of what ran when, in Chrome's trace event format (opens in Perfetto and
// chrome://tracing).
#pragma once
#include <atomic>
#include <cstdint>
#include <string>

namespace sg::trace {

// Recording begins; `stop` writes the file (JSON, atomically) and ends it. Error io when it can't
// be written.
void start(const std::string& file);
void stop();
bool enabled();

void set_rank(int rank);                    // of this thread: the trace's process number
void name_thread(const std::string& name);  // of this thread: the trace's row

namespace detail {
extern std::atomic<bool> recording;
uint64_t now();
void add(const char* name, uint64_t begin, uint64_t end);
}  // namespace detail

// The time between construction and destruction. `name` must be a literal. Costs one load when
// nothing records.
class Span {
 public:
  explicit Span(const char* name)
      : name_(detail::recording.load(std::memory_order_relaxed) ? name : nullptr) {
    if (name_)
      begin_ = detail::now();
  }
  ~Span() {
    if (name_)
      detail::add(name_, begin_, detail::now());
  }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

 private:
  const char* name_;
  uint64_t begin_ = 0;
};

}  // namespace sg::trace

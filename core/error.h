// Errors: what the user can mend (Error, with the exit code a program ends with) and broken
// invariants (Bug). A message is: operation, rule, actual values, remedy if it isn't obvious.
#pragma once
#include <fmt/format.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

namespace sg {

// The values are the exit codes of the executables.
enum class ErrorKind : int {
  usage = 2,
  bad_input = 3,
  io = 4,
  numeric = 5,
  out_of_memory = 6,
  peer = 7
};

class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  ErrorKind kind() const { return kind_; }
  int exit_code() const { return static_cast<int>(kind_); }

 private:
  ErrorKind kind_;
};

// A broken invariant of ours, never the user's mistake.
class Bug : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

template <class... Args>
[[noreturn]] void fail(ErrorKind kind, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(kind, fmt::format(format, std::forward<Args>(args)...));
}

// check(a.size(-1) == b.size(-2), "matmul: inner sizes differ: {} × {}", a.shape(), b.shape());
template <class... Args>
void check(bool ok, fmt::format_string<Args...> format, Args&&... args) {
  if (!ok) [[unlikely]]
    fail(ErrorKind::usage, format, std::forward<Args>(args)...);
}
template <class... Args>
void check(ErrorKind kind, bool ok, fmt::format_string<Args...> format, Args&&... args) {
  if (!ok) [[unlikely]]
    fail(kind, format, std::forward<Args>(args)...);
}

template <class... Args>
void invariant(bool ok, fmt::format_string<Args...> format, Args&&... args) {
  if (!ok) [[unlikely]]
    throw Bug(fmt::format(format, std::forward<Args>(args)...));
}

// "1.71 GiB"; powers of 1024.
std::string format_bytes(uint64_t bytes);

}  // namespace sg

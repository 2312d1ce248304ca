#include "optim/schedules.h"

#include <cmath>
#include <iterator>
#include <numbers>

#include "core/error.h"

namespace sg::optim {
namespace {

constexpr const char* names[] = {"constant", "linear", "cosine", "wsd"};

// How far `step` is on its way from `begin` to `end`.
double progress(int64_t step, int64_t begin, int64_t end) {
  return static_cast<double>(step - begin) / static_cast<double>(end - begin);
}

}  // namespace

const char* name_of(ScheduleKind kind) { return names[static_cast<int>(kind)]; }

ScheduleKind parse_schedule(const std::string& text) {
  for (size_t i = 0; i < std::size(names); ++i) {
    if (text == names[i]) return static_cast<ScheduleKind>(i);
  }
  fail(ErrorKind::usage, "schedule: unknown name '{}': constant, linear, cosine, wsd", text);
}

double Schedule::at(int64_t step) const {
  if (step < warmup) return lr * static_cast<double>(step + 1) / static_cast<double>(warmup + 1);
  if (kind == ScheduleKind::constant) return lr;
  if (step >= steps) return min_lr;
  const int64_t begin = kind == ScheduleKind::wsd ? steps - decay : warmup;
  if (step <= begin) return lr;
  const double done = progress(step, begin, steps);
  const double left = kind == ScheduleKind::cosine ? 0.5 * (1 + std::cos(std::numbers::pi * done)) : 1 - done;
  return min_lr + (lr - min_lr) * left;
}

}  // namespace sg::optim

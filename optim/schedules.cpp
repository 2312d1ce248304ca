#include "optim/schedules.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numbers>

#include "core/error.h"

namespace sg::optim {
namespace {

constexpr const char* names[] = {"constant", "linear", "cosine", "wsd", "WarmupLR", "WarmupDecayLR", "WarmupCosineLR"};

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
  std::string known;
  for (const char* name : names) known += (known.empty() ? "" : ", ") + std::string(name);
  fail(ErrorKind::usage, "schedule: unknown name '{}': {}", text, known);
}

double Schedule::at(int64_t step) const {
  if (kind >= ScheduleKind::warmup_lr) return deepspeed_at(step);
  if (step < warmup) return lr * static_cast<double>(step + 1) / static_cast<double>(warmup + 1);
  if (kind == ScheduleKind::constant) return lr;
  if (step >= steps) return min_lr;
  const int64_t begin = kind == ScheduleKind::wsd ? steps - decay : warmup;
  if (step <= begin) return lr;
  const double done = progress(step, begin, steps);
  const double left = kind == ScheduleKind::cosine ? 0.5 * (1 + std::cos(std::numbers::pi * done)) : 1 - done;
  return min_lr + (lr - min_lr) * left;
}

double Schedule::deepspeed_at(int64_t step) const {
  if (step == 0 && kind == ScheduleKind::warmup_cosine_lr) return 0;
  const int64_t behind = std::max<int64_t>(step - 1, 0), rise = std::max<int64_t>(warmup, 2);
  if (behind < rise) {
    const double risen = log_warmup ? std::log(static_cast<double>(behind + 1)) / std::log(static_cast<double>(rise))
                                    : progress(behind, 0, rise);
    return start_lr + (lr - start_lr) * risen;
  }
  if (kind == ScheduleKind::warmup_lr) return lr;
  const double fall = static_cast<double>(std::max<int64_t>(steps - rise, 1));
  if (kind == ScheduleKind::warmup_decay_lr)
    return min_lr + (lr - min_lr) * std::max(0.0, static_cast<double>(steps - behind) / fall);
  const double done = std::min(1.0, static_cast<double>(behind - rise + 1) / fall);
  return min_lr + (lr - min_lr) * 0.5 * (1 + std::cos(std::numbers::pi * done));
}

}  // namespace sg::optim

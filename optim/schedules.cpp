#include "optim/schedules.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numbers>

#include "core/error.h"

namespace sg::optim {
namespace {

constexpr const char* names[] = {
    "constant", "linear", "cosine", "wsd", "WarmupLR", "WarmupDecayLR", "WarmupCosineLR"};

// How far `step` is on its way from `begin` to `end`.
double progress(int64_t step, int64_t begin, int64_t end) {
  return static_cast<double>(step - begin) / static_cast<double>(end - begin);
}

}  // namespace

const char* name_of(ScheduleKind kind) {
  return names[static_cast<int>(kind)];
}

ScheduleKind parse_schedule(const std::string& text) {
  for (size_t i = 0; i < std::size(names); ++i) {
    if (text == names[i])
      return static_cast<ScheduleKind>(i);
  }
  std::string known;
  for (const char* name : names)
    known += (known.empty() ? "" : ", ") + std::string(name);
  fail(ErrorKind::usage, "schedule: unknown name '{}': {}", text, known);
}

bool depends_on_length(ScheduleKind kind) {
  return kind != ScheduleKind::constant && kind != ScheduleKind::warmup_lr;
}

int64_t Schedule::decay_steps() const {
  return decay > 0 ? decay : std::max<int64_t>(2, (steps + 9) / 10);
}

void Schedule::validate() const {
  const bool deepspeeds = kind >= ScheduleKind::warmup_lr;
  const auto check_rate = [](const char* name, double rate) {
    check(std::isfinite(rate) && rate >= 0,
          "schedule: {} must be a number of at least 0, not {}",
          name,
          rate);
  };
  check_rate("lr", lr);
  check_rate("min_lr", min_lr);
  check_rate("start_lr", start_lr);
  check(!depends_on_length(kind) || min_lr <= lr,
        "schedule: {} falls from lr to min_lr, but min_lr {} is above lr {}",
        name_of(kind),
        min_lr,
        lr);
  check(!deepspeeds || start_lr <= lr,
        "schedule: {} rises from start_lr to lr, but start_lr {} is above lr {}",
        name_of(kind),
        start_lr,
        lr);
  check(warmup >= 0 && steps >= 0 && decay >= 0,
        "schedule: warmup {}, steps {} and decay {} count steps; none is below 0",
        warmup,
        steps,
        decay);
  if (!depends_on_length(kind) || steps == 0)
    return;
  check(warmup <= steps,
        "schedule: warmup {} is above steps {}: the rate would never reach lr; use fewer warm-up "
        "steps",
        warmup,
        steps);
  check(kind != ScheduleKind::wsd || decay <= steps - warmup,
        "schedule: warmup {} and decay {} have no room in steps {}",
        warmup,
        decay,
        steps);
}

double Schedule::at(int64_t step) const {
  validate();
  check(step >= 0, "schedule: step {} is before the first", step);
  check(steps > 0 || !depends_on_length(kind),
        "schedule: {} needs its length: steps is 0",
        name_of(kind));
  if (kind >= ScheduleKind::warmup_lr)
    return deepspeed_at(step);
  if (step < warmup)
    return lr * static_cast<double>(step + 1) / static_cast<double>(warmup + 1);
  if (kind == ScheduleKind::constant)
    return lr;
  if (step >= steps)
    return min_lr;
  const int64_t begin =
      kind == ScheduleKind::wsd ? std::max(steps - decay_steps(), warmup) : warmup;
  if (step <= begin)
    return lr;
  const double done = progress(step, begin, steps);
  const double left =
      kind == ScheduleKind::cosine ? 0.5 * (1 + std::cos(std::numbers::pi * done)) : 1 - done;
  return min_lr + (lr - min_lr) * left;
}

double Schedule::deepspeed_at(int64_t step) const {
  if (step == 0 && kind == ScheduleKind::warmup_cosine_lr)
    return 0;
  const int64_t behind = std::max<int64_t>(step - 1, 0), rise = std::max<int64_t>(warmup, 2);
  if (behind < rise) {
    const double risen =
        log_warmup ? std::log(static_cast<double>(behind + 1)) / std::log(static_cast<double>(rise))
                   : progress(behind, 0, rise);
    return start_lr + (lr - start_lr) * risen;
  }
  if (kind == ScheduleKind::warmup_lr)
    return lr;
  const double fall = static_cast<double>(std::max<int64_t>(steps - rise, 1));
  if (kind == ScheduleKind::warmup_decay_lr)
    return min_lr + (lr - min_lr) * std::max(0.0, static_cast<double>(steps - behind) / fall);
  const double done = std::min(1.0, static_cast<double>(behind - rise + 1) / fall);
  return min_lr + (lr - min_lr) * 0.5 * (1 + std::cos(std::numbers::pi * done));
}

}  // namespace sg::optim

// Learning rates as pure functions of the applied step, from 0.
#pragma once
#include <cstdint>
#include <string>

namespace sg::optim {

enum class ScheduleKind : uint8_t { constant, linear, cosine, wsd };
const char* name_of(ScheduleKind kind);
ScheduleKind parse_schedule(const std::string& text);  // usage error that lists the names

// Warm-up takes `warmup` steps, the first at lr/(warmup + 1). Then `lr` stays (constant), falls to min_lr at step
// `steps` on a line or half a cosine, or stays and falls on a line over the last `decay` steps (wsd: warm-up, stable,
// decay). From `steps` on it is min_lr, with constant lr.
struct Schedule {
  ScheduleKind kind = ScheduleKind::cosine;
  double lr = 1e-3, min_lr = 0;
  int64_t warmup = 0, steps = 0;
  int64_t decay = 0;  // wsd

  double at(int64_t step) const;
};

}  // namespace sg::optim

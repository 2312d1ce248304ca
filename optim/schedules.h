// Learning rates as pure functions of the applied step, from 0.
#pragma once
#include <cstdint>
#include <string>

namespace sg::optim {

enum class ScheduleKind : uint8_t { constant, linear, cosine, wsd, warmup_lr, warmup_decay_lr, warmup_cosine_lr };
const char* name_of(ScheduleKind kind);
ScheduleKind parse_schedule(const std::string& text);  // usage error that lists the names

// Warm-up takes `warmup` steps, the first at lr/(warmup + 1). Then `lr` stays (constant), falls to min_lr at step
// `steps` on a line or half a cosine, or stays and falls on a line over the last `decay` steps (wsd: warm-up, stable,
// decay). From `steps` on it is min_lr, with constant lr.
//
// WarmupLR, WarmupDecayLR and WarmupCosineLR are DeepSpeed's, rate for rate: its clock runs one step behind, so steps 0
// and 1 both begin at start_lr (WarmupCosineLR's step 0 at 0); the rate rises to lr over `warmup` steps (at least 2) on
// a logarithm or a line, then stays, falls to min_lr at step `steps` + 1 on a line, or at `steps` on half a cosine.
struct Schedule {
  ScheduleKind kind = ScheduleKind::cosine;
  double lr = 1e-3, min_lr = 0;
  int64_t warmup = 0, steps = 0;
  int64_t decay = 0;  // wsd
  // ---- DeepSpeed's
  double start_lr = 0;
  bool log_warmup = true;

  double at(int64_t step) const;

 private:
  double deepspeed_at(int64_t step) const;
};

}  // namespace sg::optim

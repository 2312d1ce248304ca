// Learning rates as pure functions of the applied step, from 0.
#pragma once
#include <cstdint>
#include <string>

namespace sg::optim {

enum class ScheduleKind : uint8_t {
  constant,
  linear,
  cosine,
  wsd,
  warmup_lr,
  warmup_decay_lr,
  warmup_cosine_lr
};
const char* name_of(ScheduleKind kind);
ScheduleKind parse_schedule(const std::string& text);  // usage error that lists the names

// Whether a rate depends on how long the whole schedule is: all but constant and WarmupLR.
bool depends_on_length(ScheduleKind kind);

// Warm-up takes `warmup` steps, the first at lr/(warmup + 1). Then `lr` stays (constant), falls to
// min_lr at step `steps` on a line or half a cosine, or stays and falls on a line over the last
// `decay` steps (wsd: warm-up, stable, decay; 0: a tenth of `steps`, at least two). From `steps` on
// it is min_lr, with constant lr.
//
// WarmupLR, WarmupDecayLR and WarmupCosineLR are DeepSpeed's, rate for rate: its clock runs one
// step behind, so steps 0 and 1 both begin at start_lr (WarmupCosineLR's step 0 at 0); the rate
// rises to lr over `warmup` steps (at least 2) on a logarithm or a line, then stays, falls to
// min_lr at step `steps` + 1 on a line, or at `steps` on half a cosine.
struct Schedule {
  ScheduleKind kind = ScheduleKind::cosine;
  double lr = 1e-3, min_lr = 0;
  int64_t warmup = 0;
  int64_t steps = 0;  // 0: not known yet, which at() refuses where rates depend on it
  int64_t decay = 0;  // wsd
  // ---- DeepSpeed's
  double start_lr = 0;
  bool log_warmup = true;

  // Usage error, with the values, for rates that aren't finite or below 0, a last or first rate
  // above the largest, and a warm-up or decay that the steps have no room for.
  void validate() const;
  double at(int64_t step) const;  // validates
  int64_t decay_steps() const;    // of wsd, the default worked out

 private:
  double deepspeed_at(int64_t step) const;
};

}  // namespace sg::optim

// What a run shows while it runs: a line that renews itself on a terminal, plain lines elsewhere,
// and metrics.jsonl.
#pragma once
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "models/run/receipt.h"

namespace sg::models {

struct StepReport {
  int64_t step = 0;  // from 0
  float loss = 0;
  double lr = 0, norm = 0, seconds = 0;
  uint64_t memory = 0;  // bytes held on the device at most
  std::string skipped;  // why nothing was applied
};

struct SaveReport {
  int64_t step = 0;          // steps done
  double stall_seconds = 0;  // that training stood still for it
};

class Progress {
 public:
  // `speaks` on the rank that reports; the others are silent. Off a terminal, and
  // under a launcher, every `every`-th step is a line (0: about
  // 20 lines in a run). metrics.jsonl lies in `out` (empty: none); lines of steps
  // from `first_step` on, which a run that was killed left there, are dropped.
  Progress(bool speaks,
           int64_t steps,
           int64_t every,
           int64_t tokens_per_step,
           const std::string& out,
           int64_t first_step);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // What a step's products take alone: from then on MFU is shown.
  void set_peak(double ideal_seconds) { ideal_seconds_ = ideal_seconds; }

  void step(const StepReport& report);
  void validation(const Validation& validation);
  void saved(const SaveReport& save);
  void note(const std::string& text);

 private:
  void write_metrics(const Json& line);
  std::string line_of(const StepReport& report) const;
  // Products' share of a step; none before the peak is known, nor where it was measured too low,
  // beside busy ranks: then a step seems to take less than its products.
  std::optional<double> mfu(double step_seconds) const;

  const bool speaks_, terminal_;
  const int64_t steps_, tokens_per_step_, every_;
  double ideal_seconds_ = 0;
  double recent_seconds_ = 0;  // of a step, smoothed
  int64_t steps_seen_ = 0;
  bool open_line_ = false;
  std::FILE* metrics_ = nullptr;
};

}  // namespace sg::models

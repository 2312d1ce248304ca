// `auto`: the first engine of the ladder ddp, zero1, zero2, zero3 that fits the device of every
// rank, as a dry run of the real run's world, precision, micro-batch and threads finds.
#pragma once
#include <string>
#include <vector>

#include "models/run/plan.h"

namespace sg::models {

struct Rung {
  dist::EngineKind engine = dist::EngineKind::none;
  uint64_t needed = 0, capacity = 0;  // bytes, of the rank where it is tightest; Pool::unlimited
  int rank = 0;
  bool fits() const { return needed <= capacity; }
};

// Collective; every rank gets the same rungs, the last of which fits. `options` are resolved;
// `options.engine` has a definite order of accumulation. Error out_of_memory where none fits, with
// every rung's figures.
std::vector<Rung> choose_engine(const Family& family, const PlanOptions& options, dist::Comm& comm);

// "auto: ddp needs 96.3 MiB on rank 0, which has 64.0 MiB: too much"
std::string text_of(const Rung& rung);

}  // namespace sg::models

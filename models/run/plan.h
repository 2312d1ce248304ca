// `plan`: what a training step would hold, send and take at any scale, found by running the real
// engines on a meta device in a simulated group: nothing is allocated and nothing is computed.
#pragma once
#include <array>
#include <string>
#include <vector>

#include "core/ledger.h"
#include "dist/comm/traffic.h"
#include "models/run/commands.h"

namespace sg::models {

// A device and its links, for the estimate of a step's time.
struct Hardware {
  std::string name;
  double flops = 0;             // of products in the plan's precision, per second
  double memory_bandwidth = 0;  // bytes per second
  double link_bandwidth = 0;    // bytes per second that a rank sends
  double link_latency = 0;      // seconds per call
};
// a100, h100, h200 (the makers' dense figures), or `this`: measured here. Usage error otherwise.
Hardware hardware(const std::string& name, DType precision);

// Peaks in bytes: of a rank, or each the largest of several ranks'.
struct MemoryPeaks {
  std::array<uint64_t, category_count> by_category{};
  uint64_t model_states = 0;  // parameters + gradients + optimizer + accumulation
  uint64_t total = 0, setup = 0;

  uint64_t of(Category category) const { return by_category[static_cast<size_t>(category)]; }
};

struct EnginePlan {
  dist::EngineKind engine = dist::EngineKind::none;
  int rank = 0;
  Ledger memory;                 // of the rank
  MemoryPeaks most;              // of all ranks that were planned
  dist::TrafficTable traffic{};  // what it sends and receives in one step
  double compute_seconds = 0, communication_seconds = 0, exposed_seconds = 0;

  double step_seconds() const { return compute_seconds + exposed_seconds; }
};

// A rank's life under an engine, on options.dry_device, which only this thread may use meanwhile.
// Two steps run, the first recording ZeRO-3's order; the second's traffic counts. The books are
// those of a real run, to the byte. `options` are resolved.
EnginePlan plan_rank(const Family& family,
                     const PlanOptions& options,
                     dist::EngineKind engine,
                     int rank,
                     const Hardware& on = {});
// The plan of the rank that needs most memory, and in `most` the peaks of all ranks: exact for up
// to 64 ranks. Ranks that own no more than another of any sum are left out; beyond 64 ranks the
// eight that own most are planned besides rank 0, and a figure may miss a chunk of 1,024 elements.
EnginePlan plan_engine(const Family& family,
                       const PlanOptions& options,
                       dist::EngineKind engine,
                       const Hardware& on);

}  // namespace sg::models

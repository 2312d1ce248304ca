// `plan`: what a training step would hold, send and take at any scale, found by running the real engines on a meta
// device in a simulated group: nothing is allocated and nothing is computed.
#pragma once
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

struct EnginePlan {
  dist::EngineKind engine = dist::EngineKind::none;
  int rank = 0;
  Ledger memory;                 // its peaks
  dist::TrafficTable traffic{};  // what it sends and receives in one step
  double compute_seconds = 0, communication_seconds = 0, exposed_seconds = 0;

  uint64_t model_states() const;  // parameters + gradients + optimizer + accumulation
  double step_seconds() const { return compute_seconds + exposed_seconds; }
};

// A rank's life under an engine, on options.dry_device, which only this thread may use meanwhile. Two steps run, the
// first recording ZeRO-3's order; the second's traffic counts. The books are those of a real run, to the byte.
// `options` are resolved.
EnginePlan plan_rank(const Family& family, const PlanOptions& options, dist::EngineKind engine, int rank,
                     const Hardware& on = {});
// The plan of the rank that holds most, of rank 0 and rank N−1.
EnginePlan plan_engine(const Family& family, const PlanOptions& options, dist::EngineKind engine, const Hardware& on);

}  // namespace sg::models

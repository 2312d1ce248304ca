// What `compare` makes of the receipts of several engines' runs.
#pragma once
#include <string>
#include <vector>

#include "models/run/receipt.h"

namespace sg::models {

struct EngineRun {
  std::string engine;
  Json receipt;
  Json planned{};  // {total, setup}: the plan's peaks, of the rank with most
};

// {model, world, steps, precision, numerics, reference, engines: {name: {step_ms, memory,
// model_state, traffic, comm_ms, exposed_comm_ms, bits_equal, receipt}}, by_speed, by_memory,
// by_peak, textbook: {by_speed, by_memory}}. memory: the largest of the ranks' peaks, by category;
// planned: total and setup as `plan` has them; traffic: bytes a step by operation, {sent, received}
// of the rank with most; bits_equal: losses and parameters against the reference, ddp where it ran,
// else the first; by_memory: by model states, as the textbook does, by_peak: by the peak of the
// sum.
Json compare_runs(const std::vector<EngineRun>& runs);

// That as a table, a column for each engine.
std::string comparison_text(const Json& comparison);

}  // namespace sg::models

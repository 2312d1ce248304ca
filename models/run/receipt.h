// What a run leaves behind: the receipt that scripts read, and the part of it that checkpoints
// carry.
#pragma once
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "autograd/hooks.h"
#include "dist/engine.h"

namespace sg::models {

using Json = nlohmann::ordered_json;

struct Validation {
  int64_t step = 0;  // steps done before it
  double loss = 0;
};

// The run since step 0, kept in every checkpoint, so that a resumed run's receipt is the whole
// run's.
struct RunRecord {
  // ---- by step
  std::vector<float> losses;
  std::vector<double> loss_scales;   // that multiplied the loss: 1 outside fp16
  std::vector<std::string> skipped;  // why nothing was applied; empty where it was
  // ---- of the whole
  std::vector<Validation> validation;
  int64_t samples = 0;  // that the steps took: where the data goes on
  int64_t applied = 0;  // steps that changed parameters: the schedule's clock
  double first_step_ms = 0, median_step_ms = 0;  // of a finished run; 0: not measured

  std::string text() const;
  static RunRecord parse(const std::string& text, const std::string& source);
};

// What the run is, known before its first step. `numerics` decides bits: it is agreed on by the
// ranks, kept by a resume.
struct RunIdentity {
  std::string model, engine;
  std::string precision;  // f32, bf16, fp16
  std::map<std::string, int64_t> sizes;
  int64_t parameters = 0;
  int world = 1;
  uint64_t seed = 0;
  int64_t steps = 0, tokens_per_step = 0;
  std::map<std::string, std::string> numerics;
};

// {rank: {category: peak bytes, …, total}} of this rank alone.
Json memory_of(Device device);
// {operation: {phase: {calls, sent, received, padding}}} of this rank alone, what never happened
// left out.
Json traffic_of(const dist::TrafficTable& table);
// {"0": …, "1": …}: every rank's value. Collective.
Json gather_json(dist::Comm& comm, const std::string& name, const Json& mine);

// Numerics, rule 13: of the f32 masters, of frozen parameters as f32, in the order of registration,
// a tied one once. Collective, between steps; the same on every rank.
std::string hash_masters(dist::Engine& engine, const std::vector<Unit>& units);
uint64_t peak_rss_bytes();                  // of this process
double seconds_since_start();               // of this process, its loading included
double median(std::vector<double> values);  // 0 for none

Json make_receipt(const RunIdentity& identity, const RunRecord& record);

}  // namespace sg::models

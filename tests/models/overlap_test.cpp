// Communication beside computation, as the trace shows it.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/ops.h"
#include "core/trace.h"
#include "dist/engine.h"
#include "dist/engines/flat_space.h"
#include "dist/launch.h"
#include "models/gpt2/gpt2.h"

namespace sg::models {
namespace {

constexpr int steps = 3;

dist::Options options_of(dist::EngineKind engine) {
  return {.engine = engine, .first_bucket_bytes = 8 << 10, .bucket_bytes = 8 << 10};
}

struct Span {
  double begin = 0, end = 0;
};

// Spans of rank 0 by name, in order.
using Trace = std::map<std::string, std::vector<Span>>;

Trace trace_of_rank_0(const std::string& file) {
  std::ifstream in(file);
  Trace trace;
  const auto json = nlohmann::json::parse(in);
  for (const auto& event : json.at("traceEvents")) {
    if (event.at("ph") != "X" || event.at("pid") != 0)
      continue;
    const double begin = event.at("ts"), duration = event.at("dur");
    trace[event.at("name")].push_back({begin, begin + duration});
  }
  for (auto& [name, spans] : trace)
    std::sort(
        spans.begin(), spans.end(), [](const Span& a, const Span& b) { return a.begin < b.begin; });
  return trace;
}

// Trains over a link whose every message takes longer than a bucket's computation; returns how many
// buckets there are.
size_t train(const dist::Options& options, const std::string& file) {
  size_t buckets = 0;
  dist::CommOptions comm_options;
  comm_options.ranks = 2;
  comm_options.link_latency = 1e-3;
  trace::start(file);
  dist::run_threads(comm_options, [&](dist::Comm& comm) {
    Gpt2 model({.layers = 4, .heads = 2, .width = 32, .context = 16, .vocab = 64});
    if (comm.rank() == 0)
      buckets = dist::FlatSpace(model.parameters(), options, comm.size()).buckets().size();
    auto engine = dist::initialize(model.units(), options, comm);
    const Tensor ids = zeros({2, 16}, DType::i32);
    for (int step = 0; step < steps; ++step) {
      engine->backward(engine->forward([&] { return model.loss(ids, ids); }));
      engine->step();
    }
  });
  trace::stop();
  return buckets;
}

TEST(Overlap, EveryBucketButTheLastLeavesBeforeBackwardEnds) {
  const std::string file = testing::TempDir() + "overlap_trace.json";
  for (const dist::EngineKind engine :
       {dist::EngineKind::dp, dist::EngineKind::ddp, dist::EngineKind::zero1}) {
    const size_t buckets = train(options_of(engine), file);
    ASSERT_GE(buckets, 10u);
    Trace trace = trace_of_rank_0(file);
    ASSERT_EQ(trace["backward"].size(), static_cast<size_t>(steps)) << dist::name_of(engine);
    for (const Span& backward : trace["backward"]) {
      const auto inside =
          std::count_if(trace["issue"].begin(), trace["issue"].end(), [&](const Span& issue) {
            return backward.begin < issue.begin && issue.begin < backward.end;
          });
      EXPECT_GE(static_cast<size_t>(inside), buckets - 1) << dist::name_of(engine);
    }
  }
  std::filesystem::remove(file);
}

// zero1 and zero2 send updated parameters while the next forward runs.
TEST(Overlap, UpdatedParametersTravelBesideTheNextForward) {
  const std::string file = testing::TempDir() + "gather_trace.json";
  for (const dist::EngineKind engine : {dist::EngineKind::zero1, dist::EngineKind::zero2}) {
    for (const bool overlap : {true, false}) {
      dist::Options options = options_of(engine);
      options.overlap = overlap;
      train(options, file);
      Trace trace = trace_of_rank_0(file);
      for (size_t step = 1; step < static_cast<size_t>(steps); ++step) {
        const Span& forward = trace["forward"][step];
        const auto beside = std::count_if(
            trace["all_gather"].begin(), trace["all_gather"].end(), [&](const Span& s) {
              return s.end > forward.begin && s.begin < forward.end;
            });
        EXPECT_EQ(beside > 0, overlap) << dist::name_of(engine) << " step " << step;
      }
    }
  }
  std::filesystem::remove(file);
}

}  // namespace
}  // namespace sg::models

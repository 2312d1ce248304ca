// `compare`: the same training under several engines, side by side.
#include "models/measure/compare.h"

#include <algorithm>
#include <cstdio>
#include <memory>

#include "core/io/output_file.h"
#include "dist/engines/facts.h"
#include "models/run/commands.h"
#include "models/run/plan.h"
#include "models/run/run_folder.h"
#include "models/run/trainer.h"

namespace sg::models {
namespace {

using dist::EngineKind;

std::vector<EngineKind> engines_of(const CompareOptions& options) {
  if (!options.engines.empty())
    return options.engines;
  std::vector<EngineKind> engines(dist::ladder().begin(), dist::ladder().end());
  if (!dist::under_launcher())
    engines.insert(engines.begin(), EngineKind::dp);  // dp is one process
  return engines;
}

// In a group of its own, whose memory for sums goes with it: every engine's books begin empty.
EngineRun run_engine(const Family& family,
                     const TrainOptions& options,
                     const Dataset& data,
                     dist::Comm& everybody) {
  const std::unique_ptr<dist::Comm> group = everybody.split(0, everybody.rank());
  dist::Comm& comm = *group;
  comm.traffic().reset();
  Trainer trainer(family, options, data, comm);
  trainer.run();
  const Json receipt = trainer.receipt();
  Json planned;
  if (comm.rank() == 0) {
    // Each figure is the largest of all ranks, the measured one too.
    const PlanOptions dry = trainer.dry_run();
    const dist::MemoryPeaks most =
        dist::plan_engine(dry_model(family, dry), dry.engine, dry.group).most;
    planned = {{"total", most.total}, {"setup", most.setup}};
  }
  return {dist::name_of(options.engine.engine), receipt, planned};
}

}  // namespace

void compare(const Family& family, const CompareOptions& given, dist::Comm& comm) {
  TrainOptions options = given.train;
  if (comm.rank() == 0)
    check_reports(options);
  if (comm.rank() == 0)
    say_overrides(options.overrides);
  // The same for all, or bits would differ.
  if (options.engine.accumulation == dist::Accumulation::automatic)
    options.engine.accumulation = options.engine.elastic_determinism
                                      ? dist::Accumulation::ranks_first
                                      : dist::Accumulation::local_first;
  options.quiet = true;
  options.show_mfu = false;
  options.data.val_fraction = 0;
  const Dataset data = open_data(family, options);
  std::vector<EngineRun> runs;
  for (const EngineKind engine : engines_of(given)) {
    options.engine.engine = engine;
    runs.push_back(run_engine(family, options, data, comm));
  }
  if (comm.rank() != 0)
    return;
  const Json comparison = compare_runs(runs);
  std::fputs(comparison_text(comparison).c_str(), stdout);
  if (!options.receipt.empty())
    write_output(options.receipt, comparison.dump(2) + "\n");
}

}  // namespace sg::models

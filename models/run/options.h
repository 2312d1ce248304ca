// What the programs of the model zoo are asked to do: one struct per subcommand, filled from the
// command line.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/device.h"
#include "dist/comm/connect.h"
#include "dist/comm/sim.h"
#include "dist/options.h"
#include "models/data/data.h"
#include "models/run/values.h"
#include "models/size_options.h"
#include "optim/schedules.h"

namespace CLI {
class App;
}

namespace sg::models {

// Ranks, and how they talk.
struct GroupOptions {
  dist::CommOptions comm;
  uint64_t device_memory = Pool::unlimited;  // bytes of a rank's device
};

struct TrainOptions {
  SizeOptions size;
  DataOptions data;
  GroupOptions group;
  optim::Schedule schedule{.lr = 1e-3, .min_lr = 1e-4};
  std::optional<int64_t> warmup;  // the schedule's; else 100 steps, or all where there are fewer
  dist::Options engine{.engine = dist::EngineKind::none};
  std::string
      config;  // JSON (dist/config/config.h), whose values merge_config takes over; empty: none
  std::vector<std::string> overrides;  // what the command line has otherwise, a line each

  int64_t micro_batch = 12;        // 0: what global_batch leaves
  int64_t global_batch = 0;        // 0: micro_batch · accumulation_steps · ranks
  int64_t accumulation_steps = 0;  // 0: what the batches leave
  int64_t steps = 1000;
  uint64_t seed = 1;

  std::string out;  // empty: nothing is saved
  std::optional<std::string> resume;
  std::string accept_change;  // comma-separated: world, isa, library, rules, steps
  bool overwrite = false;     // what out holds of a run before it goes
  int64_t save_every = 0, eval_every = 0;
  double save_minutes = 10;  // between saves, at most; 0: time saves nothing
  bool async_save = false;   // files are written beside training
  int64_t eval_batches = 0;  // 0: the whole validation split
  std::string trace, receipt;
  int64_t print_every = 0;  // steps between lines of progress; 0: about 20 lines
  bool show_mfu = true, quiet = false;
  bool verbose = false;  // the start says all of the numerics
};

struct EvalOptions {
  std::string from = {};
  DataOptions data = {};
  GroupOptions group = {};
  int64_t batch = 12, batches = 0;
};

struct ExportOptions {
  std::string from = {}, to = {};
  DType dtype = DType::f32;
  bool allow_nonfinite = false;
};

struct GenerateOptions {
  std::string from = {};
  std::string prompt = {};  // text; of a model of a token file: ids by spaces
  GroupOptions group = {};
  int64_t tokens = 200;
  double temperature = 0.8;
  int64_t top_k = 0;  // 0: every token
  uint64_t seed = 1;
};

struct BenchOptions : TrainOptions {
  BenchOptions() { micro_batch = 4, steps = 10; }
};

// Engines one after another, each with the same training; `train.receipt` is the comparison's.
struct CompareOptions {
  TrainOptions train;
  std::vector<dist::EngineKind> engines;  // empty: all that the group can run
  std::string explain;                    // "ring": shows that instead
};

struct PlanOptions {
  SizeOptions size;
  double parameters = 0;  // above 0: the family's model nearest to so many, instead of a named size
  int world = 1;
  std::vector<dist::EngineKind> engines;
  dist::Options engine{.engine = dist::EngineKind::ddp};
  int64_t micro_batch = 1;
  int threads = 0;  // of a rank's device; 0: this machine's processors dealt to the ranks
  Device dry_device = meta(0);  // where ranks live
  dist::Imitated imitated = dist::Imitated::threads;
  std::string hardware = "h100";
  bool json = false;
};

// Each names the program's sizes in its help. The structs must outlive parsing, which ends with
// merge_config where the command has a --config.
void add_train_options(CLI::App& app, TrainOptions& options, const std::string& sizes);
void add_eval_options(CLI::App& app, EvalOptions& options);
void add_generate_options(CLI::App& app, GenerateOptions& options);
void add_export_options(CLI::App& app, ExportOptions& options);
void add_bench_options(CLI::App& app, BenchOptions& options, const std::string& sizes);
void add_compare_options(CLI::App& app, CompareOptions& options, const std::string& sizes);
void add_plan_options(CLI::App& app, PlanOptions& options, const std::string& sizes);

// Takes over what the file of --config says, but for what was given on the command line: that wins,
// and `overrides` tells. `command` is parsed.
void merge_config(const CLI::App& command, TrainOptions& options);
void say_overrides(const TrainOptions& options);  // to stdout

}  // namespace sg::models

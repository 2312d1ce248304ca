// What the programs of the model zoo are asked to do: one struct per subcommand, filled from the
// command line.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/device.h"
#include "dist/config/settings.h"
#include "dist/plan.h"
#include "models/data/data.h"
#include "models/run/values.h"
#include "models/size_options.h"

namespace CLI {
class App;
}

namespace sg::models {

constexpr int64_t usual_warmup = -1;  // 100 steps, or all where there are fewer

struct TrainOptions {
  SizeOptions size;
  DataOptions data;
  dist::CommOptions group;
  optim::Schedule schedule{.lr = 1e-3, .min_lr = 1e-4, .warmup = usual_warmup};
  dist::Options engine{.engine = dist::EngineKind::none};
  dist::BatchSizes batch{.micro = 12};  // micro 0: what the global batch leaves
  std::string config;                  // JSON (dist/config/config.h), which merge_config takes over
  std::vector<std::string> overrides;  // what the command line has otherwise, a line each

  int64_t steps = 1000;
  uint64_t seed = 1;
  std::string out;  // empty: nothing is saved
  std::optional<std::string> resume;
  std::string init_from;      // folder of the values to begin with; empty: random ones
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

using dist::At;
using dist::Decides;
using dist::Topic;

// The rows of TrainOptions' own fields (dist/setting.h).
inline constexpr dist::Setting<TrainOptions> run_settings[] = {
    {.name = "steps",
     .field = At<&TrainOptions::steps>::of,
     .option = "--steps",
     .help = "optimizer steps",
     .range = {.low = 1},
     .decides = Decides::calls},
    {.name = "seed",
     .field = At<&TrainOptions::seed>::of,
     .option = "--seed",
     .help = "of initial values, order of the data and dropout",
     .decides = Decides::bits},
    {.name = "out",
     .field = At<&TrainOptions::out>::of,
     .option = "--out",
     .help = "folder for checkpoints and metrics.jsonl",
     .decides = Decides::calls},
    {.name = "overwrite",
     .field = At<&TrainOptions::overwrite>::of,
     .option = "--overwrite",
     .help = "the run that --out holds goes; without it such a folder is refused",
     .form = dist::Form::flag,
     .decides = Decides::calls},
    {.name = "init_from",  // the hash of what is there decides bits
     .field = At<&TrainOptions::init_from>::of,
     .option = "--init-from",
     .help = "begin with the weights of a Hugging Face folder, or of another run's folder, which "
             "decide the model's sizes, instead of random values",
     .decides = Decides::calls},
    {.name = "accept_change",
     .field = At<&TrainOptions::accept_change>::of,
     .option = "--accept-change",
     .help = "let a resume differ in world (which keeps the run's global batch unless another is "
             "given), isa, library, rules (of the numerics: another version's), steps (the "
             "schedule is stretched to the new length); by commas",
     .decides = Decides::calls},
    {.name = "save_every",
     .field = At<&TrainOptions::save_every>::of,
     .option = "--save-every",
     .help = "steps between checkpoints; 0: by time and at the end",
     .decides = Decides::calls},
    {.name = "save_minutes",  // rank 0's clock decides
     .field = At<&TrainOptions::save_minutes>::of,
     .option = "--save-minutes",
     .help = "minutes between checkpoints, at most; 0: any",
     .range = {.high = 1e6}},
    {.name = "async_save",
     .field = At<&TrainOptions::async_save>::of,
     .option = "--async-save",
     .help = "write checkpoints beside training, which stops only while they are copied to host "
             "memory",
     .form = dist::Form::flag,
     .decides = Decides::calls},
    {.name = "eval_every",
     .field = At<&TrainOptions::eval_every>::of,
     .option = "--eval-every",
     .help = "steps between validations; 0: at the end only",
     .decides = Decides::calls},
    {.name = "eval_batches",
     .field = At<&TrainOptions::eval_batches>::of,
     .option = "--eval-batches",
     .help = "batches of a validation; 0: the whole split",
     .decides = Decides::calls},
    {.name = "trace",
     .field = At<&TrainOptions::trace>::of,
     .option = "--trace",
     .help = "file for a Chrome trace (opens in Perfetto)",
     .topic = Topic::report},
    {.name = "receipt",  // ranks compare whether there is one
     .field = At<&TrainOptions::receipt>::of,
     .option = "--receipt",
     .help = "file for the receipt (JSON)",
     .topic = Topic::report},
    {.name = "verbose",
     .field = At<&TrainOptions::verbose>::of,
     .option = "--verbose",
     .help = "say at the start all that the run's bits depend on, as the receipt does",
     .form = dist::Form::flag,
     .topic = Topic::report},
};

inline constexpr const char* tokenizer_words[] = {"bytes", "chars"};

inline constexpr dist::Setting<DataOptions> data_settings[] = {
    {.name = "data",  // its fingerprint decides bits
     .field = At<&DataOptions::path>::of,
     .option = "--data",
     .help = "a text, or a file of tokens (.bin: raw uint16 or llm.c's form); without it, this "
             "project's own sources"},
    {.name = "tokenizer",
     .field = At<&DataOptions::tokenizer>::of,
     .option = "--tokenizer",
     .help = "bytes or chars, for a text; bytes unless given",
     .one_of = tokenizer_words},
    {.name = "validation",
     .field = At<&DataOptions::val_fraction>::of,
     .option = "--val-fraction",
     .help = "the end of the data that validates",
     .range = {.high = 0.9},
     .decides = Decides::bits},
};

struct EvalOptions {
  std::string from = {};
  DataOptions data = {};
  dist::CommOptions group = {};
  int64_t batch = 12, batches = 0;
};

struct ExportOptions {
  std::string from = {}, to = {};
  DType dtype = DType::f32;
  int64_t shard_bytes = int64_t{5} << 30;  // of a file in a Hugging Face folder, at most
  bool allow_nonfinite = false;
  dist::CommOptions group = {};  // of one rank: its device's capacity
};

struct ImportOptions {
  std::string from = {}, to = {};
  dist::CommOptions group = {};  // of one rank: its device's capacity
};

struct GenerateOptions {
  std::string from = {};
  std::string prompt = {};  // text; of a model of a token file: ids by spaces
  dist::CommOptions group = {};
  int64_t tokens = 200;
  double temperature = 0.8;
  int64_t top_k = 0;  // 0: every token
  uint64_t seed = 1;
};

struct BenchOptions : TrainOptions {
  BenchOptions() { batch.micro = 4, steps = 10; }
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
  dist::DryGroup group;
  std::vector<dist::EngineKind> engines;
  dist::Options engine{.engine = dist::EngineKind::ddp};
  dist::BatchSizes batch{.micro = 1};
  std::string config;  // as TrainOptions'
  std::vector<std::string> overrides;
  std::string hardware = "h100";
  bool json = false;
};

// Each names the program's sizes in its help. The structs must outlive parsing, which ends with
// merge_config where the command has a --config.
void add_train_options(CLI::App& app, TrainOptions& options, const std::string& sizes);
void add_eval_options(CLI::App& app, EvalOptions& options);
void add_generate_options(CLI::App& app, GenerateOptions& options);
void add_export_options(CLI::App& app, ExportOptions& options);
void add_import_options(CLI::App& app, ImportOptions& options);
void add_bench_options(CLI::App& app, BenchOptions& options, const std::string& sizes);
void add_compare_options(CLI::App& app, CompareOptions& options, const std::string& sizes);
void add_plan_options(CLI::App& app, PlanOptions& options, const std::string& sizes);

// Takes over what the file of --config says, but for what was given on the command line: that wins,
// and `overrides` tells, as it tells of what the engine doesn't use. An option that was given and
// that no engine of the run uses is a usage error. `command` is parsed.
void merge_config(const CLI::App& command, TrainOptions& options);
void merge_config(const CLI::App& command, CompareOptions& options);
void merge_config(const CLI::App& command, PlanOptions& options);
void say_overrides(const std::vector<std::string>& overrides);  // to stdout

}  // namespace sg::models

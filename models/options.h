// What the programs of the model zoo are asked to do: one struct per subcommand, filled from the command line.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "core/pool.h"
#include "dist/launch.h"
#include "dist/options.h"

namespace CLI {
class App;
}

namespace sg::models {

// A family's size by name, each number settable.
struct SizeOptions {
  std::string size;
  std::optional<int64_t> layers, heads, width, context, vocab;
  float dropout = 0;
  bool tied = true;
};

struct DataOptions {
  std::string path;  // empty: the text of this project's own sources
  std::string tokenizer = "bytes";
  double validation_fraction = 0.1;
};

// Ranks, and how they talk.
struct GroupOptions {
  dist::CommOptions comm;
  std::string algorithm = "ordered";
  uint64_t device_memory = Pool::unlimited;  // bytes of a rank's device
};

struct ScheduleOptions {
  std::string shape = "cosine";
  double lr = 1e-3, min_lr = 1e-4;
  int64_t warmup = 100;
};

struct TrainOptions {
  SizeOptions size;
  DataOptions data;
  GroupOptions group;
  ScheduleOptions schedule;
  dist::Options engine{.engine = dist::EngineKind::none};
  int64_t micro_batch = 12;
  int64_t global_batch = 0;  // 0: micro_batch · ranks
  int64_t steps = 1000;
  uint64_t seed = 1;

  std::string out;  // empty: nothing is saved
  std::optional<std::string> resume;
  std::string accept_change;  // comma-separated: world, isa, library
  int64_t save_every = 0, eval_every = 0;
  int64_t eval_batches = 0;  // 0: the whole validation split
  std::string trace, receipt;
};

struct EvalOptions {
  std::string from;
  DataOptions data;
  GroupOptions group;
  int64_t batch = 12, batches = 0;
};

struct GenerateOptions {
  std::string from, prompt;
  GroupOptions group;
  int64_t tokens = 200;
  double temperature = 0.8;
  int64_t top_k = 0;  // 0: every token
  uint64_t seed = 1;
};

struct BenchOptions {
  SizeOptions size;
  GroupOptions group;
  dist::Options engine{.engine = dist::EngineKind::none};
  int64_t micro_batch = 4, steps = 10;
  std::string receipt, trace;
};

// Each names the program's sizes in its help. The structs must outlive parsing.
void add_train_options(CLI::App& app, TrainOptions& options, const std::string& sizes);
void add_eval_options(CLI::App& app, EvalOptions& options);
void add_generate_options(CLI::App& app, GenerateOptions& options);
void add_bench_options(CLI::App& app, BenchOptions& options, const std::string& sizes);

// "512MiB", "2GiB", "1.5GB", "1048576": bytes; anything else is a usage error that names the option.
uint64_t parse_bytes(const std::string& option, const std::string& text);

}  // namespace sg::models

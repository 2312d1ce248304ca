// The JSON configuration, in the format that DeepSpeed made common: the same keys with the same
// meaning, into Options. A key that doesn't exist is an error that names the nearest one; a key or
// value that isn't supported yet is an error that says so; nothing is ignored. The keys are
// those of the settings' rows (dist/options.h, settings.h), and those that keys.cpp lists.
//
//   const dist::Config config = dist::read_config("ds.json");
//   auto engine = dist::initialize(model.units(), config.options(comm.size()), comm);
//   engine->set_learning_rate(config.schedule.at(applied));
//
// Defaults are ours (Options) but for two sections that are taken as DeepSpeed means them:
// "optimizer" leaves what it doesn't say to that optimizer's defaults there (AdamW: betas 0.9,
// 0.999, weight_decay 0), and without a "scheduler" its learning rate is constant. Weight decay is
// of matrices alone, as everywhere here.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "dist/config/settings.h"

namespace sg::dist {

struct BatchNames {  // what the user called them
  const char* train = "train_batch_size";
  const char* micro = "train_micro_batch_size_per_gpu";
  const char* accumulation = "gradient_accumulation_steps";
};
// Any two give the third; train or micro alone means accumulation 1; accumulation alone leaves the
// others 0. Usage error that shows the arithmetic where they contradict each other.
BatchSizes settle(BatchSizes sizes, int ranks, const BatchNames& names = {});

struct Config {
  Options engine = {.engine = EngineKind::ddp};  // micro_steps: of options()
  CommOptions comm;                              // timeout and checks
  BatchSizes batch;
  optim::Schedule schedule{.kind = optim::ScheduleKind::constant};  // steps 0: the run's
  int64_t steps_per_print = 10;
  int64_t bucket_elements = 0;  // reduce_bucket_size, which bucket_bytes follows; 0: not given

  std::string source;                        // the file, for messages
  std::map<std::string, std::string> given;  // dotted path → value as JSON; sections too
  bool gives(const std::string& path) const { return given.contains(path); }

  // `engine` with the micro-steps that the batch sizes mean on so many ranks.
  Options options(int ranks) const;
};

// Usage error, naming `source` and the key path, for anything that isn't a configuration we can
// honour to the letter; it names all that is wrong, so that a file is mended in one go.
Config parse_config(std::string_view text, const std::string& source);
// The same of a file of at most 1 MiB; bad_input where it is missing.
Config read_config(const std::string& file);

}  // namespace sg::dist

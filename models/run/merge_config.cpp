// The command line over the file of --config: which option says what a key says, and which of them
// wins.
#include <CLI/CLI.hpp>
#include <cstdio>

#include "dist/config/config.h"
#include "models/run/options.h"

namespace sg::models {
namespace {

using dist::Config;

struct Setting {
  const char* option;                 // null: the command line has no word for it
  std::vector<const char*> keys;      // that say the same
  std::vector<const char*> sections;  // that imply it, by their defaults
  void (*take)(const Config& from, TrainOptions& to);
};

// Takes a field as the file has it.
template <auto field>
void engine(const Config& from, TrainOptions& to) {
  to.engine.*field = from.engine.*field;
}
template <auto field>
void optimizer(const Config& from, TrainOptions& to) {
  to.engine.optimizer.*field = from.engine.optimizer.*field;
}
template <auto field>
void schedule(const Config& from, TrainOptions& to) {
  to.schedule.*field = from.schedule.*field;
}

const Setting batch_settings[] = {
    // A batch alone leaves the micro-batch to the arithmetic.
    {"--micro-batch",
     {"train_micro_batch_size_per_gpu"},
     {"train_batch_size"},
     [](const Config& c, TrainOptions& o) { o.micro_batch = c.batch.micro; }},
    {"--global-batch",
     {"train_batch_size"},
     {},
     [](const Config& c, TrainOptions& o) { o.global_batch = c.batch.train; }},
    {nullptr,
     {"gradient_accumulation_steps"},
     {},
     [](const Config& c, TrainOptions& o) { o.accumulation_steps = c.batch.accumulation; }},
};

const Setting engine_settings[] = {
    {"--precision", {"fp16.enabled", "bf16.enabled"}, {}, engine<&dist::Options::precision>},
    {nullptr, {}, {"fp16"}, engine<&dist::Options::loss_scale>},
    {"--on-nonfinite", {"on_nonfinite"}, {}, engine<&dist::Options::on_nonfinite>},
    {"--elastic-determinism",
     {"elastic_determinism"},
     {},
     engine<&dist::Options::elastic_determinism>},
    {nullptr, {"prescale_gradients"}, {}, engine<&dist::Options::prescale_gradients>},
    {nullptr, {"gradient_predivide_factor"}, {}, engine<&dist::Options::predivide>},
    {nullptr, {"communication_data_type"}, {}, engine<&dist::Options::communication>},
    {"--accumulation",
     {"zero_optimization.accumulation"},
     {},
     engine<&dist::Options::accumulation>},
    {"--partition", {"zero_optimization.partition"}, {}, engine<&dist::Options::partition>},
    {"--reduction", {"comm.reduction"}, {}, engine<&dist::Options::reduction>},
    {"--bucket-bytes",
     {"zero_optimization.reduce_bucket_size"},
     {},
     [](const Config& c, TrainOptions& o) {  // after the precision
       o.engine.bucket_bytes =
           c.bucket_elements * static_cast<int64_t>(size_of(o.engine.precision));
     }},
    {"--overlap", {"zero_optimization.overlap_comm"}, {}, engine<&dist::Options::overlap>},
    {"--zero1-reduce",
     {"zero_optimization.zero1_reduce"},
     {},
     engine<&dist::Options::zero1_all_reduce>},
    {"--prefetch-elements",
     {"zero_optimization.stage3_prefetch_bucket_size"},
     {},
     engine<&dist::Options::prefetch_elements>},
    {"--max-live-elements",
     {"zero_optimization.stage3_max_live_parameters"},
     {},
     engine<&dist::Options::max_live_elements>},
    {"--persistent-elements",
     {"zero_optimization.stage3_param_persistence_threshold"},
     {},
     engine<&dist::Options::persistent_elements>},
    {"--clip", {"gradient_clipping"}, {}, engine<&dist::Options::clip>},
    {"--comm-timeout",
     {"comm.timeout_seconds"},
     {},
     [](const Config& c, TrainOptions& o) { o.group.comm.timeout = c.comm.timeout; }},
    {nullptr,
     {"comm.check"},
     {},
     [](const Config& c, TrainOptions& o) { o.group.comm.checks = c.comm.checks; }},
};

// An optimizer without a scheduler has a constant rate.
const Setting optimizer_settings[] = {
    {"--optimizer", {"optimizer.type"}, {"optimizer"}, optimizer<&optim::OptimizerOptions::type>},
    {"--beta1",
     {"optimizer.params.betas"},
     {"optimizer"},
     optimizer<&optim::OptimizerOptions::beta1>},
    {"--beta2",
     {"optimizer.params.betas"},
     {"optimizer"},
     optimizer<&optim::OptimizerOptions::beta2>},
    {"--weight-decay",
     {"optimizer.params.weight_decay"},
     {"optimizer"},
     optimizer<&optim::OptimizerOptions::weight_decay>},
    {nullptr,
     {},
     {"optimizer"},
     [](const Config& c, TrainOptions& o) {
       o.engine.optimizer.eps = c.engine.optimizer.eps;
       o.engine.optimizer.momentum = c.engine.optimizer.momentum;
       o.engine.optimizer.nesterov = c.engine.optimizer.nesterov;
     }},
    {"--schedule",
     {"scheduler.type"},
     {"optimizer", "scheduler"},
     schedule<&optim::Schedule::kind>},
    {"--lr",
     {"optimizer.params.lr", "scheduler.params.warmup_max_lr"},
     {"optimizer", "scheduler"},
     schedule<&optim::Schedule::lr>},
    {"--min-lr",
     {"scheduler.params.cos_min_ratio", "scheduler.params.min_lr"},
     {"optimizer", "scheduler"},
     schedule<&optim::Schedule::min_lr>},
    {"--warmup",
     {"scheduler.params.warmup_num_steps"},
     {"optimizer", "scheduler"},
     [](const Config& c, TrainOptions& o) { o.warmup = c.schedule.warmup; }},
    {"--decay",
     {"scheduler.params.decay_num_steps"},
     {"scheduler"},
     schedule<&optim::Schedule::decay>},
    {nullptr,
     {},
     {"scheduler"},
     [](const Config& c, TrainOptions& o) {
       o.schedule.steps = c.schedule.steps;
       o.schedule.start_lr = c.schedule.start_lr;
       o.schedule.log_warmup = c.schedule.log_warmup;
     }},
};

// "zero_optimization.stage 2", of those that the file gives; empty where it gives none
std::string said(const Config& config, const std::vector<const char*>& keys) {
  std::string text;
  for (const char* key : keys)
    if (config.gives(key))
      text += (text.empty() ? "" : ", ") + std::string(key) + " " + config.given.at(key);
  return text;
}

// The words after an option on the command line; none where it isn't there.
std::optional<std::string> words_of(const CLI::App& command, const char* name) {
  const CLI::Option* option = name ? command.get_option_no_throw(name) : nullptr;
  if (!option || option->count() == 0)
    return std::nullopt;
  return CLI::detail::join(option->results(), " ");
}

template <class Settings>
void merge(const CLI::App& command,
           const Config& config,
           const Settings& settings,
           TrainOptions& options) {
  for (const Setting& s : settings) {
    const std::string text = said(config, s.keys);
    if (const auto words = words_of(command, s.option)) {
      if (!text.empty())
        options.overrides.push_back(
            fmt::format("{} {} wins over {} of {}", s.option, *words, text, config.source));
    } else if (!text.empty() || !said(config, s.sections).empty()) {
      s.take(config, options);
    }
  }
}

// The engine, which the table of keys gives a default: stage 0 is ddp. compare runs several.
void merge_engine(const CLI::App& command, const Config& config, TrainOptions& options) {
  const bool compares = command.get_option_no_throw("--engines") != nullptr;
  const char* option = compares ? "--engines" : "--engine";
  const auto words = words_of(command, option);
  const std::string text = said(config, {"zero_optimization.stage"});
  if (!words && !compares)
    options.engine.engine = config.engine.engine;
  else if (!text.empty())
    options.overrides.push_back(fmt::format(
        "{} {} wins over {} of {}", option, words.value_or("all"), text, config.source));
}

}  // namespace

void merge_config(const CLI::App& command, TrainOptions& options) {
  if (options.config.empty())
    return;
  const Config config = dist::read_config(options.config);
  const double lr = config.schedule.lr;
  merge_engine(command, config, options);
  merge(command, config, batch_settings, options);
  merge(command, config, engine_settings, options);
  merge(command, config, optimizer_settings, options);
  options.print_every = config.steps_per_print;
  // WarmupCosineLR's rates are shares of the largest, whoever gave that.
  if (config.schedule.kind == optim::ScheduleKind::warmup_cosine_lr && options.schedule.lr != lr &&
      lr > 0) {
    const double scale = options.schedule.lr / lr;
    options.schedule.start_lr *= scale;
    if (!words_of(command, "--min-lr"))
      options.schedule.min_lr *= scale;
  }
}

void say_overrides(const TrainOptions& options) {
  for (const std::string& line : options.overrides)
    std::printf("%s\n", line.c_str());
}

}  // namespace sg::models

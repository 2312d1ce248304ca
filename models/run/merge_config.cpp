// The command line over the file of --config: which of them wins, by the rows of all settings
// (dist/setting.h), and what neither of them may say to an engine that doesn't use it.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>

#include "core/error.h"
#include "dist/config/config.h"
#include "models/run/options.h"

namespace sg::models {
namespace {

using dist::Config;
using dist::EngineKind;

// The words after an option on the command line; none where it isn't there.
std::optional<std::string> words_of(const CLI::App& command, const char* name) {
  const CLI::Option* option = name ? command.get_option_no_throw(name) : nullptr;
  if (!option || option->count() == 0)
    return std::nullopt;
  return CLI::detail::join(option->results(), " ");
}

// "zero_optimization.stage 2", of those that the file gives; empty where it gives none
std::string given_by(const Config& config, const std::array<const char*, 2>& keys) {
  std::string text;
  for (const char* key : keys) {
    if (key && config.gives(key))
      text += (text.empty() ? "" : ", ") + std::string(key) + " " + config.given.at(key);
  }
  return text;
}

// A command, and the file that it names.
class Merge {
 public:
  Merge(const CLI::App& command, const Config& config, std::vector<std::string>& overrides)
      : command_(command), config_(config), overrides_(overrides) {}

  // What the file says of the table's settings, but for what the command line says.
  template <class Rows, class Owner>
  void take(const Rows& rows, Owner& to, const Owner& from) const {
    for (const auto& row : rows) {
      const bool engine = row.topic == dist::Topic::engine;  // take_engine
      if (!engine && file_decides(row.option, row.keys, row.implied_by))
        dist::assign(row.field(to), row.field(const_cast<Owner&>(from)));  // which it only reads
    }
  }

  void take_engine_options(dist::Options& to) const {
    const dist::Options& from = config_.engine;
    take(dist::engine_settings, to, from);
    take(dist::optimizer_settings, to.optimizer, from.optimizer);
    take(dist::loss_scale_settings, to.loss_scale, from.loss_scale);
    // The file's buckets have elements, of the precision that was settled on.
    if (config_.bucket_elements > 0 && !gives("--bucket-bytes"))
      to.bucket_bytes = config_.bucket_elements * static_cast<int64_t>(size_of(to.precision));
  }

  // The file has an engine in any case: without a stage it is ddp. `option` names the command's,
  // which wins, and wins by its default where that isn't empty.
  bool takes_engine(const char* option, const std::string& by_default = {}) const {
    const auto words = words_of(command_, option);
    if (!words && by_default.empty())
      return true;
    const std::string text = given_by(config_, {"zero_optimization.stage"});
    if (!text.empty())
      note_override(option, words.value_or(by_default), text);
    return false;
  }

  // Refuses an option, and notes a key, that none of these engines uses.
  void check_use(const std::vector<EngineKind>& engines, const dist::Options& options) const {
    dist::visit_engine(options, [&](auto rows, const auto&) {
      for (const auto& row : rows)
        check_use_of(row, engines);
    });
  }

  bool gives(const char* option) const { return words_of(command_, option).has_value(); }

 private:
  bool file_decides(const char* option,
                    const std::array<const char*, 2>& keys,
                    const std::array<const char*, 2>& implied_by) const {
    const std::string text = given_by(config_, keys);
    const auto words = words_of(command_, option);
    if (words && !text.empty())
      note_override(option, *words, text);
    return !words && !(text.empty() && given_by(config_, implied_by).empty());
  }

  void note_override(const char* option, const std::string& words, const std::string& text) const {
    overrides_.push_back(
        fmt::format("{} {} wins over {} of {}", option, words, text, config_.source));
  }

  template <class Row>
  void check_use_of(const Row& row, const std::vector<EngineKind>& engines) const {
    const auto uses = [&](EngineKind engine) { return dist::has_any(row.engines, engine); };
    if (std::any_of(engines.begin(), engines.end(), uses))
      return;
    std::string names;
    for (const EngineKind engine : engines)
      names += (names.empty() ? "" : ", ") + std::string(dist::name_of(engine));
    const std::string users = dist::names_of(row.engines);
    check(!gives(row.option),
          "{}: {} doesn't use it, only {}; leave it out",
          row.option ? row.option : row.name,
          names,
          users);
    const std::string text = given_by(config_, row.keys);
    if (!text.empty())
      overrides_.push_back(fmt::format("{} of {} changes nothing: {} doesn't use it, only {}",
                                       text,
                                       config_.source,
                                       names,
                                       users));
  }

  const CLI::App& command_;
  const Config& config_;
  std::vector<std::string>& overrides_;
};

Config read_or_default(const std::string& file) {
  return file.empty() ? Config() : dist::read_config(file);
}

// Of a training run, but for its engine.
void merge_training(const Merge& merge, const Config& config, TrainOptions& options) {
  merge.take(dist::batch_settings, options.batch, config.batch);
  merge.take_engine_options(options.engine);
  merge.take(dist::schedule_settings, options.schedule, config.schedule);
  merge.take(dist::group_settings, options.group, config.comm);
  options.print_every = config.steps_per_print;
  // WarmupCosineLR's rates are shares of the largest, whoever gave that.
  const double lr = config.schedule.lr;
  const bool shares = config.schedule.kind == optim::ScheduleKind::warmup_cosine_lr && lr > 0;
  if (!shares || options.schedule.lr == lr)
    return;
  const double scale = options.schedule.lr / lr;
  options.schedule.start_lr *= scale;
  if (!merge.gives("--min-lr"))
    options.schedule.min_lr *= scale;
}

}  // namespace

void merge_config(const CLI::App& command, TrainOptions& options) {
  const Config config = read_or_default(options.config);
  const Merge merge(command, config, options.overrides);
  if (!options.config.empty()) {
    if (merge.takes_engine("--engine"))
      options.engine.engine = config.engine.engine;
    merge_training(merge, config, options);
  }
  merge.check_use({options.engine.engine}, options.engine);
}

void merge_config(const CLI::App& command, CompareOptions& options) {
  TrainOptions& train = options.train;
  const Config config = read_or_default(train.config);
  const Merge merge(command, config, train.overrides);
  if (!train.config.empty()) {
    merge.takes_engine("--engines", "all");
    merge_training(merge, config, train);
  }
  merge.check_use(options.engines.empty() ? parse_engines("all") : options.engines, train.engine);
}

void merge_config(const CLI::App& command, PlanOptions& options) {
  const Config config = read_or_default(options.config);
  const Merge merge(command, config, options.overrides);
  if (!options.config.empty()) {
    if (config.gives("zero_optimization.stage") && merge.takes_engine("--engine"))
      options.engines = dist::engines_tried(config.engine.engine);
    merge.take(dist::batch_settings, options.batch, config.batch);
    merge.take_engine_options(options.engine);
  }
  merge.check_use(options.engines, options.engine);
}

void say_overrides(const std::vector<std::string>& overrides) {
  for (const std::string& line : overrides)
    std::printf("%s\n", line.c_str());
}

}  // namespace sg::models

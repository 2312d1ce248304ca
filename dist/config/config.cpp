#include "dist/config/config.h"

#include <algorithm>
#include <set>

#include "core/error.h"
#include "core/io/input_file.h"
#include "core/io/json.h"
#include "dist/config/keys.h"

namespace sg::dist {
namespace {

constexpr uint64_t largest_file = 1 << 20;
constexpr JsonLimits limits = {.depth = 16, .values = 1 << 16};

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>('A' <= c && c <= 'Z' ? c - 'A' + 'a' : c);
  return text;
}

// Insertions, removals and replacements that turn one text into the other.
size_t edits(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row.back();
}

std::string_view last_word(std::string_view path) { return path.substr(path.rfind('.') + 1); }

// By the last word, which may stand in the wrong section; then by the whole path.
std::string nearest_key(const std::string& path) {
  const std::string cut = path.substr(0, 100);
  const auto distance = [&](const ConfigKey& key) {
    return std::pair{edits(last_word(cut), last_word(key.path)), edits(cut, key.path)};
  };
  const auto& keys = config_keys();
  return std::min_element(keys.begin(), keys.end(),
                          [&](const ConfigKey& a, const ConfigKey& b) { return distance(a) < distance(b); })
      ->path;
}

// Every key of `object`, whose own path is `prefix`, into the draft.
void read_keys(const nlohmann::json& object, const std::string& prefix, ConfigDraft& draft) {
  for (const auto& [name, value] : object.items()) {
    const ConfigValue at{draft.config.source, prefix.empty() ? name : prefix + "." + name, value};
    const auto& keys = config_keys();
    const auto key = std::find_if(keys.begin(), keys.end(), [&](const ConfigKey& k) { return k.path == at.path; });
    const bool section =
        std::any_of(keys.begin(), keys.end(), [&](const ConfigKey& k) { return k.path.starts_with(at.path + "."); });
    check(key != keys.end() || section, "{}: there is no key {}; the nearest is {}", at.source, at.path,
          nearest_key(at.path));
    draft.config.given[at.path] = at.text();
    if (key != keys.end()) {
      key->read(at, draft);
    } else {
      if (!value.is_object()) at.must_be("an object, with keys of its own");
      read_keys(value, at.path, draft);
    }
  }
}

// ---- sections whose keys mean something together

// An optimizer, the keys of "params" that it has, and DeepSpeed's defaults for them.
struct OptimizerKind {
  const char* name;
  std::set<std::string> params;
  optim::OptimizerOptions defaults;
};
const OptimizerKind optimizer_kinds[] = {
    {"SGD", {"lr", "momentum", "nesterov", "weight_decay"}, {.type = "sgd", .weight_decay = 0, .momentum = 0}},
    {"Adam",
     {"lr", "betas", "eps", "weight_decay", "bias_correction", "amsgrad", "torch_adam"},
     {.type = "adam", .beta2 = 0.999, .weight_decay = 0}},
    {"AdamW",
     {"lr", "betas", "eps", "weight_decay", "bias_correction", "amsgrad", "torch_adam"},
     {.type = "adamw", .beta2 = 0.999, .weight_decay = 0}},
    {"Lion", {"lr", "betas", "weight_decay"}, {.type = "lion", .beta2 = 0.99, .weight_decay = 0}},
};

struct SchedulerKind {
  optim::ScheduleKind kind;
  std::set<std::string> params;
};
const SchedulerKind scheduler_kinds[] = {
    {optim::ScheduleKind::warmup_lr, {"warmup_min_lr", "warmup_max_lr", "warmup_num_steps", "warmup_type"}},
    {optim::ScheduleKind::warmup_decay_lr,
     {"warmup_min_lr", "warmup_max_lr", "warmup_num_steps", "warmup_type", "total_num_steps"}},
    {optim::ScheduleKind::warmup_cosine_lr,
     {"warmup_min_ratio", "cos_min_ratio", "warmup_num_steps", "warmup_type", "total_num_steps"}},
};

// The kind of that name, of which `section`'s "params" has only keys.
template <class Kinds, class NameOf>
const auto& kind_of(const ConfigDraft& draft, const std::string& section, const std::string& name, const Kinds& kinds,
                    NameOf name_of_kind) {
  const Config& config = draft.config;
  std::string known;
  for (const auto& kind : kinds) {
    known += (known.empty() ? "" : ", ") + std::string(name_of_kind(kind));
    if (lower(name) != lower(name_of_kind(kind))) continue;
    const std::string prefix = section + ".params.";
    for (const auto& [path, value] : config.given)
      check(!path.starts_with(prefix) || kind.params.contains(path.substr(prefix.size())),
            "{}: {} {} has no place in {}", config.source, path, value, name_of_kind(kind));
    return kind;
  }
  fail(ErrorKind::usage, "{}: {}.type \"{}\" isn't supported; there are {}", config.source, section, name, known);
}

void finish_optimizer(ConfigDraft& draft) {
  Config& config = draft.config;
  if (draft.lr) config.engine.lr = *draft.lr;
  config.schedule.lr = config.engine.lr;
  if (!config.gives("optimizer")) return;
  const OptimizerKind& kind =
      kind_of(draft, "optimizer", draft.optimizer, optimizer_kinds, [](const OptimizerKind& k) { return k.name; });
  optim::OptimizerOptions& o = config.engine.optimizer = kind.defaults;
  if (draft.betas) o.beta1 = draft.betas->at(0), o.beta2 = draft.betas->at(1);
  o.eps = draft.eps.value_or(o.eps);
  o.weight_decay = draft.weight_decay.value_or(o.weight_decay);
  o.momentum = draft.momentum.value_or(o.momentum);
  o.nesterov = draft.nesterov.value_or(o.nesterov);
  check(!o.nesterov || o.momentum > 0, "{}: optimizer.params.nesterov needs a momentum above 0", config.source);
}

// After the optimizer, whose learning rate it takes over.
void finish_scheduler(ConfigDraft& draft) {
  Config& config = draft.config;
  optim::Schedule& s = config.schedule;
  if (!config.gives("scheduler")) return;
  check(config.gives("scheduler.type"), "{}: scheduler has no type", config.source);
  const auto name = [](const SchedulerKind& k) { return optim::name_of(k.kind); };
  s.kind = kind_of(draft, "scheduler", draft.scheduler, scheduler_kinds, name).kind;
  check(draft.warmup_type == "log" || draft.warmup_type == "linear",
        "{}: scheduler.params.warmup_type \"{}\" is neither log nor linear", config.source, draft.warmup_type);
  s.log_warmup = draft.warmup_type == "log";
  if (!config.gives("scheduler.params.warmup_num_steps")) s.warmup = 1000;
  if (s.kind == optim::ScheduleKind::warmup_cosine_lr) {
    s.start_lr = draft.start_ratio * s.lr;
    s.min_lr = draft.end_ratio * s.lr;
    return;
  }
  // DeepSpeed forgets the optimizer's rate where the scheduler has one; two that differ are a mistake.
  const bool decays = s.kind == optim::ScheduleKind::warmup_decay_lr;
  const double peak = draft.max_lr.value_or(decays ? 1e-3 : s.lr);
  check(!draft.lr || *draft.lr == peak,
        "{}: optimizer.params.lr {} and scheduler.params.warmup_max_lr {}{} contradict each other: {} trains with the "
        "latter",
        config.source, s.lr, peak, draft.max_lr ? "" : " (its default)", optim::name_of(s.kind));
  s.lr = config.engine.lr = peak;
  s.start_lr = s.min_lr = draft.start_lr;
}

void finish_precision(ConfigDraft& draft) {
  Config& config = draft.config;
  check(!draft.fp16 || !draft.bf16, "{}: fp16.enabled and bf16.enabled are both true; one precision trains",
        config.source);
  config.engine.precision = draft.fp16 ? DType::f16 : draft.bf16 ? DType::bf16 : DType::f32;
  if (config.bucket_elements > 0)
    config.engine.bucket_bytes = config.bucket_elements * static_cast<int64_t>(size_of(config.engine.precision));
}

}  // namespace

BatchSizes settle(BatchSizes sizes, int ranks, const BatchNames& names) {
  auto& [train, micro, accumulation] = sizes;
  const auto quotient = [&](int64_t divisor) { return std::max<int64_t>(1, train / divisor / ranks); };
  if (micro == 0 && train > 0) micro = quotient(accumulation = std::max<int64_t>(1, accumulation));
  if (accumulation == 0) accumulation = train > 0 ? quotient(micro) : 1;
  check(accumulation < 1 << 30 && static_cast<double>(micro) * static_cast<double>(accumulation) * ranks < 0x1p62,
        "batch: {} {} × {} {} × {} ranks is beyond any machine", names.micro, micro, names.accumulation, accumulation,
        ranks);
  const int64_t product = micro * accumulation * ranks;
  if (train == 0) train = product;
  check(train == product, "batch: {} {} isn't {} {} × {} {} × {} ranks = {}", names.train, train, names.micro, micro,
        names.accumulation, accumulation, ranks, product);
  return sizes;
}

Options Config::options(int ranks) const {
  Options options = engine;
  options.micro_steps = static_cast<int>(settle(batch, ranks).accumulation);
  return options;
}

Config parse_config(std::string_view text, const std::string& source) {
  ConfigDraft draft;
  draft.config.source = source;
  nlohmann::json json;
  try {
    json = parse_json(text, source, limits);
  } catch (const Error& e) { throw Error(ErrorKind::usage, e.what()); }
  if (!json.is_object()) ConfigValue{source, "the top level", json}.must_be("an object");
  read_keys(json, "", draft);
  finish_optimizer(draft);
  finish_scheduler(draft);
  finish_precision(draft);
  return std::move(draft.config);
}

Config read_config(const std::string& file) {
  const InputFile input(file);
  check(input.size() <= largest_file, "{}: {} is too much for a configuration; at most {}", file,
        format_bytes(input.size()), format_bytes(largest_file));
  std::string text(input.size(), '\0');
  input.read(0, text.data(), text.size());
  return parse_config(text, file);
}

}  // namespace sg::dist

#include "dist/config/config.h"

#include <algorithm>
#include <set>

#include "core/error.h"
#include "core/io/input_file.h"
#include "core/io/json.h"
#include "core/nearest.h"
#include "dist/config/keys.h"

namespace sg::dist {
namespace {

constexpr uint64_t largest_file = 1 << 20;

std::string lower(std::string text) {
  for (char& c : text)
    c = static_cast<char>('A' <= c && c <= 'Z' ? c - 'A' + 'a' : c);
  return text;
}

std::string_view last_word(std::string_view path) {
  return path.substr(path.rfind('.') + 1);
}

// Every key, and the sections that they lie in.
const std::vector<std::string>& known_paths() {
  static const std::vector<std::string> paths = [] {
    std::set<std::string> all;
    for (const ConfigKey& key : config_keys())
      for (size_t end = key.path.size(); end != std::string::npos;
           end = end == 0 ? end : key.path.rfind('.', end - 1))
        all.insert(key.path.substr(0, end));
    return std::vector<std::string>(all.begin(), all.end());
  }();
  return paths;
}

// What an unknown key may have been: by its last word, which may stand in the wrong section, then
// by the whole path; where nothing is near, what its section has.
std::string hint_for(const std::string& section, const std::string& path) {
  using Distance = std::pair<size_t, size_t>;
  const std::string_view word = last_word(path);
  const auto distance = [&](const std::string& known) {
    return Distance(edits(word, last_word(known)), edits(path, known));
  };
  const auto& paths = known_paths();
  const auto best =
      std::min_element(paths.begin(), paths.end(), [&](const std::string& a, const std::string& b) {
        return distance(a) < distance(b);
      });
  if (is_near(distance(*best).first, word.size()))
    return "the nearest is " + *best;
  std::string keys;
  for (const std::string& known : paths) {
    const bool inside = section.empty() || known.starts_with(section + ".");
    const std::string rest = known.substr(!inside || section.empty() ? 0 : section.size() + 1);
    if (inside && rest.find('.') == std::string::npos)
      keys += (keys.empty() ? "" : ", ") + rest;
  }
  return fmt::format("{} has {}", section.empty() ? "the top level" : section, keys);
}

// A mistake, and what Hugging Face's word for "the Trainer knows" means here.
void note(ConfigDraft& draft, const Error& e, const nlohmann::json& value = {}) {
  const bool trainers = value == "auto";
  draft.mistakes.push_back(
      e.what() +
      std::string(trainers ? " (\"auto\" is what Hugging Face's Trainer fills in from its own "
                             "arguments; here say the value, or leave the key out)"
                           : ""));
}

void read_keys(const nlohmann::json& object, const std::string& section, ConfigDraft& draft);

// One key of an object whose own path is `section`.
void read_key(const std::string& section,
              const std::string& name,
              const nlohmann::json& value,
              ConfigDraft& draft) {
  const ConfigValue at{section.empty() ? name : section + "." + name, value};
  const auto& keys = config_keys();
  const auto key =
      std::find_if(keys.begin(), keys.end(), [&](const ConfigKey& k) { return k.path == at.path; });
  const bool dotted = name.find('.') != std::string::npos;
  const bool is_section = std::any_of(keys.begin(), keys.end(), [&](const ConfigKey& k) {
    return k.path.starts_with(at.path + ".");
  });
  check(!dotted,
        "there is no key \"{}\": a section is an object of its own, {{\"{}\": {{\"{}\": …}}}}",
        at.path,
        name.substr(0, name.find('.')),
        name.substr(name.find('.') + 1));
  check(key != keys.end() || is_section,
        "there is no key {}; {}",
        at.path,
        hint_for(section, at.path));
  draft.config.given[at.path] = at.text();
  if (key != keys.end()) {
    key->read(at, draft);
  } else {
    if (!value.is_object())
      at.must_be("an object, with keys of its own");
    read_keys(value, at.path, draft);
  }
}

// Every key of `object`, whose own path is `section`, into the draft.
void read_keys(const nlohmann::json& object, const std::string& section, ConfigDraft& draft) {
  for (const auto& [name, value] : object.items()) {
    try {
      read_key(section, name, value, draft);
    } catch (const Error& e) {
      note(draft, e, value);
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
    {"SGD",
     {"lr", "momentum", "nesterov", "weight_decay"},
     {.type = "sgd", .weight_decay = 0, .momentum = 0}},
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
    {optim::ScheduleKind::warmup_lr,
     {"warmup_min_lr", "warmup_max_lr", "warmup_num_steps", "warmup_type"}},
    {optim::ScheduleKind::warmup_decay_lr,
     {"warmup_min_lr", "warmup_max_lr", "warmup_num_steps", "warmup_type", "total_num_steps"}},
    {optim::ScheduleKind::warmup_cosine_lr,
     {"warmup_min_ratio", "cos_min_ratio", "warmup_num_steps", "warmup_type", "total_num_steps"}},
    {optim::ScheduleKind::wsd,
     {"min_lr", "warmup_num_steps", "decay_num_steps", "total_num_steps"}},
};

// The kind of that name, of which `section`'s "params" has only keys.
template <class Kinds, class NameOf>
const auto& kind_of(ConfigDraft& draft,
                    const std::string& section,
                    const std::string& name,
                    const Kinds& kinds,
                    NameOf name_of_kind) {
  const Config& config = draft.config;
  std::string known;
  for (const auto& kind : kinds) {
    known += (known.empty() ? "" : ", ") + std::string(name_of_kind(kind));
    if (lower(name) != lower(name_of_kind(kind)))
      continue;
    const std::string prefix = section + ".params.";
    for (const auto& [path, value] : config.given)
      if (path.starts_with(prefix) && !kind.params.contains(path.substr(prefix.size())))
        draft.mistakes.push_back(
            fmt::format("{} {} has no place in {}", path, value, name_of_kind(kind)));
    return kind;
  }
  fail(ErrorKind::usage,
       "{}.type \"{}\" isn't supported; there are {}{}",
       section,
       name,
       known,
       name == "auto" ? " (Hugging Face's Trainer isn't here to choose one)" : "");
}

void finish_optimizer(ConfigDraft& draft) {
  Config& config = draft.config;
  if (draft.lr)
    config.engine.lr = *draft.lr;
  config.schedule.lr = config.engine.lr;
  if (!config.gives("optimizer"))
    return;
  const OptimizerKind& kind =
      kind_of(draft, "optimizer", draft.optimizer, optimizer_kinds, [](const OptimizerKind& k) {
        return k.name;
      });
  optim::OptimizerOptions& o = config.engine.optimizer = kind.defaults;
  if (draft.betas)
    o.beta1 = draft.betas->at(0), o.beta2 = draft.betas->at(1);
  o.eps = draft.eps.value_or(o.eps);
  o.weight_decay = draft.weight_decay.value_or(o.weight_decay);
  o.momentum = draft.momentum.value_or(o.momentum);
  o.nesterov = draft.nesterov.value_or(o.nesterov);
  check(!o.nesterov || o.momentum > 0, "optimizer.params.nesterov needs a momentum above 0");
}

// After the optimizer, whose learning rate it takes over.
void finish_scheduler(ConfigDraft& draft) {
  Config& config = draft.config;
  optim::Schedule& s = config.schedule;
  if (!config.gives("scheduler"))
    return;
  check(config.gives("scheduler.type"), "scheduler has no type");
  if (draft.scheduler.empty())
    return;  // no word: that was said
  const auto name = [](const SchedulerKind& k) { return optim::name_of(k.kind); };
  s.kind = kind_of(draft, "scheduler", draft.scheduler, scheduler_kinds, name).kind;
  check(draft.warmup_type == "log" || draft.warmup_type == "linear",
        "scheduler.params.warmup_type \"{}\" is neither log nor linear",
        draft.warmup_type);
  s.log_warmup = draft.warmup_type == "log";
  if (s.kind == optim::ScheduleKind::wsd) {
    check(draft.end_lr <= s.lr,
          "scheduler.params.min_lr {} is above optimizer.params.lr {}",
          draft.end_lr,
          s.lr);
    s.min_lr = draft.end_lr;
    return;
  }
  if (!config.gives("scheduler.params.warmup_num_steps"))
    s.warmup = 1000;
  if (s.kind == optim::ScheduleKind::warmup_cosine_lr) {
    s.start_lr = draft.start_ratio * s.lr;
    s.min_lr = draft.end_ratio * s.lr;
    return;
  }
  // DeepSpeed forgets the optimizer's rate where the scheduler has one; two that differ are a
  // mistake.
  const bool decays = s.kind == optim::ScheduleKind::warmup_decay_lr;
  const double peak = draft.max_lr.value_or(decays ? 1e-3 : s.lr);
  check(!draft.lr || *draft.lr == peak,
        "optimizer.params.lr {} and scheduler.params.warmup_max_lr {}{} contradict each other: {} "
        "trains with the "
        "latter",
        s.lr,
        peak,
        draft.max_lr ? "" : " (its default)",
        optim::name_of(s.kind));
  s.lr = config.engine.lr = peak;
  s.start_lr = s.min_lr = draft.start_lr;
  check(draft.start_lr <= peak,
        "scheduler.params.warmup_min_lr {} is above scheduler.params.warmup_max_lr {}",
        draft.start_lr,
        peak);
}

// Where the file says how long the schedule is.
void check_length(ConfigDraft& draft) {
  const Config& config = draft.config;
  const optim::Schedule& s = config.schedule;
  if (s.steps == 0)
    return;
  if (!config.gives("scheduler.params.warmup_num_steps"))
    return;  // the command line may say it
  check(s.warmup <= s.steps,
        "scheduler.params.warmup_num_steps {} is above scheduler.params.total_num_steps {}",
        s.warmup,
        s.steps);
  check(s.decay <= s.steps - s.warmup,
        "scheduler.params.warmup_num_steps {} and scheduler.params.decay_num_steps {} have no room "
        "in "
        "scheduler.params.total_num_steps {}",
        s.warmup,
        s.decay,
        s.steps);
}

void finish_precision(ConfigDraft& draft) {
  Config& config = draft.config;
  check(!draft.fp16 || !draft.bf16,
        "fp16.enabled and bf16.enabled are both true; one precision trains");
  config.engine.precision = draft.fp16 ? DType::f16 : draft.bf16 ? DType::bf16 : DType::f32;
  if (config.bucket_elements > 0)
    config.engine.bucket_bytes =
        config.bucket_elements * static_cast<int64_t>(size_of(config.engine.precision));
}

// All mistakes at once.
void refuse(const ConfigDraft& draft) {
  const auto& mistakes = draft.mistakes;
  if (mistakes.empty())
    return;
  std::string text = draft.config.source + ": ";
  if (mistakes.size() > 1)
    text += fmt::format("{} mistakes:", mistakes.size());
  for (const std::string& mistake : mistakes)
    text += (mistakes.size() > 1 ? "\n  " : "") + mistake;
  throw Error(ErrorKind::usage, text);
}

}  // namespace

BatchSizes settle(BatchSizes sizes, int ranks, const BatchNames& names) {
  auto& [train, micro, accumulation] = sizes;
  const auto quotient = [&](int64_t divisor) {
    return std::max<int64_t>(1, train / divisor / ranks);
  };
  if (micro == 0 && train > 0)
    micro = quotient(accumulation = std::max<int64_t>(1, accumulation));
  if (accumulation == 0)
    accumulation = train > 0 ? quotient(micro) : 1;
  check(accumulation < 1 << 30 &&
            static_cast<double>(micro) * static_cast<double>(accumulation) * ranks < 0x1p62,
        "batch: {} {} × {} {} × {} ranks is beyond any machine",
        names.micro,
        micro,
        names.accumulation,
        accumulation,
        ranks);
  const int64_t product = micro * accumulation * ranks;
  if (train == 0)
    train = product;
  check(train == product,
        "batch: {} {} isn't {} {} × {} {} × {} ranks = {}",
        names.train,
        train,
        names.micro,
        micro,
        names.accumulation,
        accumulation,
        ranks,
        product);
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
  std::vector<std::string> repeated;
  nlohmann::json json;
  try {
    json = parse_json(text, source, {.depth = 16, .values = 1 << 16, .repeated = &repeated});
  } catch (const Error& e) {
    throw Error(ErrorKind::usage, e.what());
  }
  check(json.is_object(),
        "{}: the top level must be an object, not {}",
        source,
        ConfigValue{"", json}.text());
  for (const std::string& path : repeated)
    draft.mistakes.push_back(fmt::format("the key {} is there twice; keep one", path));
  read_keys(json, "", draft);
  for (const auto finish : {finish_optimizer, finish_scheduler, check_length, finish_precision}) {
    try {
      finish(draft);
    } catch (const Error& e) {
      note(draft, e);
    }
  }
  refuse(draft);
  return std::move(draft.config);
}

Config read_config(const std::string& file) {
  const InputFile input(file);
  check(input.size() <= largest_file,
        "{}: {} is too much for a configuration; at most {}",
        file,
        format_bytes(input.size()),
        format_bytes(largest_file));
  std::string text(input.size(), '\0');
  input.read(0, text.data(), text.size());
  return parse_config(text, file);
}

}  // namespace sg::dist

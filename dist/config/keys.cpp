#include "dist/config/keys.h"

#include <cmath>
#include <limits>

#include "core/error.h"
#include "dist/engines/facts.h"

namespace sg::dist {
namespace {

using Read = std::function<void(const ConfigValue&, ConfigDraft&)>;
using Draft = ConfigDraft;

template <class Field>
using In = Field* (*)(Draft&);  // where it lies in the draft

bool flag_of(const ConfigValue& v) {
  if (!v.value.is_boolean())
    v.must_be("true or false");
  return v.value.get<bool>();
}

// 5e8 is a whole number too.
double number_of(const ConfigValue& v, const Range& range, bool whole) {
  const double x = v.value.is_number() ? v.value.get<double>() : std::nan("");
  if (!range.holds(x) || (whole && x != std::floor(x)))
    v.must_be(range.text(whole));
  return x;
}

// A word; its own error says which there are.
template <class Parse>
auto word_of(const ConfigValue& v, const Parse& parse) {
  if (!v.value.is_string())
    v.must_be("a word in quotes");
  try {
    return parse(v.value.get<std::string>());
  } catch (const Error& e) {
    fail(ErrorKind::usage, "{}: {}", v.path, e.what());
  }
}

// ---- keys of settings that have a row: read by the type of their field

bool switch_of(const ConfigValue& v, const std::array<const char*, 2>& words) {
  if (words[1] == std::string("on"))
    return flag_of(v);
  return word_of(v, [&](const std::string& text) { return parse_switch(words, text); });
}

void read_field(const ConfigValue& v, const Field& field, const Range& range, const auto& words) {
  if (auto* const* value = std::get_if<bool*>(&field))
    **value = switch_of(v, words);
  if (auto* const* value = std::get_if<int*>(&field))
    **value = static_cast<int>(number_of(v, range, true));
  if (auto* const* value = std::get_if<int64_t*>(&field))
    **value = static_cast<int64_t>(number_of(v, range, true));
  if (auto* const* value = std::get_if<double*>(&field))
    **value = number_of(v, range, false);
  if (const auto* value = std::get_if<WordField>(&field))
    word_of(v, [&](const std::string& text) { return value->parse(value->at, text), true; });
}

using Rows = std::vector<ConfigKey>;

template <class Settings, class Owner>
void add_rows(Rows& keys, const Settings& rows, Owner& (*owner)(Config&)) {
  for (const auto& row : rows) {
    if (row.own_reader || !row.keys[0])
      continue;
    keys.push_back({row.keys[0], [&row, owner](const ConfigValue& v, Draft& d) {
                      read_field(v, row.field(owner(d.config)), row.range, row.switch_words);
                    }});
  }
}

Rows keys_of_rows() {
  Rows keys;
  add_rows(
      keys, batch_settings, +[](Config& c) -> BatchSizes& { return c.batch; });
  add_rows(
      keys, engine_settings, +[](Config& c) -> Options& { return c.engine; });
  add_rows(
      keys, loss_scale_settings, +[](Config& c) -> optim::LossScaleOptions& {
        return c.engine.loss_scale;
      });
  add_rows(
      keys, schedule_settings, +[](Config& c) -> optim::Schedule& { return c.schedule; });
  add_rows(
      keys, group_settings, +[](Config& c) -> CommOptions& { return c.comm; });
  return keys;
}

// ---- keys that mean something together with others (config.cpp), or to which the file gives
// another range than the command line

Read flag(In<bool> field) {
  return [field](const ConfigValue& v, Draft& d) { *field(d) = flag_of(v); };
}

// Field: double, or an optional one
template <class Field>
Read number(In<Field> field, Range range = {}) {
  return [=](const ConfigValue& v, Draft& d) { *field(d) = number_of(v, range, false); };
}

Read count(In<int64_t> field) {
  return [field](const ConfigValue& v, Draft& d) {
    *field(d) = static_cast<int64_t>(number_of(v, {.low = 1, .high = largest_option}, true));
  };
}

Read word(In<std::string> field) {
  return [field](const ConfigValue& v, Draft& d) {
    *field(d) = word_of(v, [](const std::string& text) { return text; });
  };
}

constexpr Range below_one = {.high = 1, .below_high = true};

Read betas(In<std::optional<std::vector<double>>> field) {
  return [field](const ConfigValue& v, Draft& d) {
    std::vector<double> two;
    for (const auto& x : v.value.is_array() ? v.value : nlohmann::json::array())
      two.push_back(x.is_number() ? x.get<double>() : std::nan(""));
    if (two.size() != 2 || !below_one.holds(two[0]) || !below_one.holds(two[1]))
      v.must_be("two numbers from 0 to below 1");
    *field(d) = two;
  };
}

void read_stage(const ConfigValue& v, Draft& d) {
  if (v.value == "auto") {
    d.config.engine.engine = EngineKind::automatic;
    return;
  }
  if (!v.value.is_number_integer() || v.value < 0 || v.value > 3)
    v.must_be("0, 1, 2, 3 or \"auto\"");
  d.config.engine.engine = ladder()[v.value.get<size_t>()];
}

// null: the gradients' own type
void read_communication(const ConfigValue& v, Draft& d) {
  std::optional<DType>& type = d.config.engine.communication;
  for (const auto& [name, dtype] :
       {std::pair{"fp32", DType::f32}, {"bf16", DType::bf16}, {"fp16", DType::f16}})
    if (v.value == name)
      type = dtype;
  if (!type && !v.value.is_null())
    v.must_be("null, \"fp32\", \"bf16\" or \"fp16\"");
}

// A key that changes nothing yet: it may stand in the file with the one value that says what
// happens anyway.
Read only(nlohmann::json value, std::string why = "isn't supported yet") {
  return [value = std::move(value), why = std::move(why)](const ConfigValue& v, Draft&) {
    if (v.value == value)
      return;
    fail(ErrorKind::usage, "{} {} {}; only {}", v.path, v.text(), why, value.dump());
  };
}

Read refused(const std::string& why = "isn't supported yet") {
  return [why](const ConfigValue& v, Draft&) {
    fail(ErrorKind::usage, "{} {}; leave it out", v.path, why);
  };
}

Rows training_keys() {
  return {
      {"train_batch_size", count([](Draft& d) { return &d.config.batch.train; })},
      {"steps_per_print", count([](Draft& d) { return &d.config.steps_per_print; })},
      {"communication_data_type", read_communication},
      {"data_types.grad_accum_dtype", only("fp32")},
  };
}

Rows zero_keys() {
  return {
      {"zero_optimization.stage", read_stage},
      {"zero_optimization.contiguous_gradients", only(true)},
      {"zero_optimization.reduce_bucket_size",
       count([](Draft& d) { return &d.config.bucket_elements; })},
      {"zero_optimization.allgather_bucket_size",
       refused("isn't supported: parameters are gathered in the buckets of reduce_bucket_size")},
      {"zero_optimization.sub_group_size", refused()},
      {"zero_optimization.stage3_max_reuse_distance", only(0)},
      {"zero_optimization.tile_linear", only(0)},
      {"zero_optimization.stage3_gather_16bit_weights_on_model_save", only(false)},
      {"zero_optimization.delayed_update.enabled", only(false)},
      {"zero_optimization.delayed_update.after_steps", only(40)},
      // DeepSpeed's, whose defaults are what we do
      {"zero_optimization.reduce_scatter",
       only(true, "isn't supported; see zero_optimization.zero1_reduce")},
      {"zero_optimization.allgather_partitions", only(true)},
      {"zero_optimization.round_robin_gradients", only(false)},
      {"zero_optimization.load_from_fp32_weights", only(true)},
      {"zero_optimization.elastic_checkpoint",
       only(true, "isn't supported: every checkpoint reshards")},
      {"zero_optimization.ignore_unused_parameters", only(true)},
  };
}

Rows offload_keys() {
  Rows rows;
  for (const auto& [section, buffers] : {std::pair{"optimizer", 4}, {"param", 5}}) {
    const std::string path = std::string("zero_optimization.offload_") + section + ".";
    if (section == std::string("param"))  // optimizer: dist/options.h
      rows.push_back({path + "device", only("none")});
    rows.push_back({path + "pin_memory", only(true)});
    rows.push_back({path + "buffer_count", only(buffers)});
    rows.push_back({path + "nvme_path", refused()});
  }
  rows.push_back({"zero_optimization.offload_optimizer.ratio", only(1.0)});
  rows.push_back({"zero_optimization.offload_optimizer.pipeline_read", only(false)});
  rows.push_back({"zero_optimization.offload_optimizer.pipeline_write", only(false)});
  rows.push_back({"zero_optimization.offload_param.buffer_size", only(1e8)});
  return rows;
}

Rows precision_keys() {
  return {
      {"fp16.enabled", flag([](Draft& d) { return &d.fp16; })},
      {"fp16.auto_cast", only(false)},
      {"bf16.enabled", flag([](Draft& d) { return &d.bf16; })},
      {"bf16.check_grad_overflow", only(true)},
  };
}

Rows optimizer_keys() {
  using Optional = std::optional<double>;
  return {
      {"optimizer.type", word([](Draft& d) { return &d.optimizer; })},
      {"optimizer.params.lr", number<Optional>([](Draft& d) { return &d.lr; })},
      {"optimizer.params.betas", betas([](Draft& d) { return &d.betas; })},
      {"optimizer.params.eps", number<Optional>([](Draft& d) { return &d.eps; }, {.low = 1e-300})},
      {"optimizer.params.weight_decay", number<Optional>([](Draft& d) { return &d.weight_decay; })},
      {"optimizer.params.momentum",
       number<Optional>([](Draft& d) { return &d.momentum; }, below_one)},
      {"optimizer.params.nesterov",
       [](const ConfigValue& v, Draft& d) { d.nesterov = flag_of(v); }},
      {"optimizer.params.bias_correction", only(true)},
      {"optimizer.params.amsgrad", only(false)},
      {"optimizer.params.adam_w_mode",
       refused("isn't read: say \"AdamW\" or \"Adam\" as optimizer.type")},
      {"optimizer.params.torch_adam", only(false)},
  };
}

Rows scheduler_keys() {
  return {
      {"scheduler.type", word([](Draft& d) { return &d.scheduler; })},
      {"scheduler.params.warmup_min_lr", number<double>([](Draft& d) { return &d.start_lr; })},
      {"scheduler.params.warmup_max_lr",
       number<std::optional<double>>([](Draft& d) { return &d.max_lr; })},
      {"scheduler.params.warmup_num_steps",
       count([](Draft& d) { return &d.config.schedule.warmup; })},
      {"scheduler.params.warmup_type", word([](Draft& d) { return &d.warmup_type; })},
      {"scheduler.params.decay_num_steps",
       count([](Draft& d) { return &d.config.schedule.decay; })},
      {"scheduler.params.min_lr", number<double>([](Draft& d) { return &d.end_lr; })},
      {"scheduler.params.warmup_min_ratio",
       number<double>([](Draft& d) { return &d.start_ratio; }, below_one)},
      {"scheduler.params.cos_min_ratio",
       number<double>([](Draft& d) { return &d.end_ratio; }, below_one)},
  };
}

// Known, not there yet: their "off" is all that may be said.
Rows later_keys() {
  Rows rows = {
      {"activation_checkpointing.partition_activations",
       only(false,
            "needs a tensor-parallel group: data-parallel ranks hold different activations")},
      {"activation_checkpointing.contiguous_memory_optimization", only(false)},
      {"activation_checkpointing.number_checkpoints", only(nullptr)},
      {"activation_checkpointing.synchronize_checkpoint_boundary", only(false)},
      {"activation_checkpointing.profile", only(false)},
      {"aio.block_size", only(1048576)},
      {"aio.queue_depth", only(8)},
      {"aio.intra_op_parallelism", only(1)},
      {"aio.single_submit", only(false)},
      {"aio.overlap_events", only(true)},
      {"wall_clock_breakdown", only(false)},
      {"memory_breakdown", only(false)},
      {"dump_state", only(false)},
      {"sparse_gradients", only(false)},
      {"zero_allow_untested_optimizer", only(false)},
      {"amp.enabled", only(false, "isn't supported: see bf16 and fp16")},
  };
  const std::pair<const char*, std::vector<const char*>> reports[] = {
      {"flops_profiler",
       {"profile_step", "module_depth", "top_modules", "detailed", "output_file"}},
      {"comms_logger", {"verbose", "prof_all", "debug", "prof_ops"}},
      {"tensorboard", {"output_path", "job_name"}},
      {"csv_monitor", {"output_path", "job_name"}},
      {"wandb", {"team", "group", "project"}}};
  for (const auto& [section, keys] : reports) {
    rows.push_back({section + std::string(".enabled"), only(false)});
    for (const char* key : keys)
      rows.push_back({fmt::format("{}.{}", section, key), refused()});
  }
  for (const char* section : {"elasticity",
                              "autotuning",
                              "curriculum_learning",
                              "data_efficiency",
                              "sparse_attention",
                              "compression_training",
                              "pipeline",
                              "hybrid_engine"})
    rows.push_back({section, refused()});
  return rows;
}

}  // namespace

std::string ConfigValue::text() const {
  std::string text = value.dump(-1, ' ', true);
  if (text.size() > 60)
    text = text.substr(0, 57) + "...";
  return text;
}

void ConfigValue::must_be(const std::string& what) const {
  fail(ErrorKind::usage, "{} must be {}, not {}", path, what, text());
}

const std::vector<ConfigKey>& config_keys() {
  static const std::vector<ConfigKey> keys = [] {
    Rows all;
    for (const auto& rows : {keys_of_rows,
                             training_keys,
                             zero_keys,
                             offload_keys,
                             precision_keys,
                             optimizer_keys,
                             scheduler_keys,
                             later_keys}) {
      Rows some = rows();
      std::move(some.begin(), some.end(), std::back_inserter(all));
    }
    return all;
  }();
  return keys;
}

}  // namespace sg::dist

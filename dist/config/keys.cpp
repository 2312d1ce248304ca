#include "dist/config/keys.h"

#include <cmath>
#include <limits>

#include "core/error.h"
#include "dist/engines/facts.h"

namespace sg::dist {
namespace {

using Read = std::function<void(const ConfigValue&, ConfigDraft&)>;
using Draft = ConfigDraft;

constexpr int64_t largest = int64_t{1} << 47;  // of any count: products of two still fit
constexpr double infinity = std::numeric_limits<double>::infinity();

template <class Field>
using In = Field* (*)(Draft&);  // where it lies in the draft

Read flag(In<bool> field) {
  return [field](const ConfigValue& v, Draft& d) {
    if (!v.value.is_boolean())
      v.must_be("true or false");
    *field(d) = v.value.get<bool>();
  };
}

double number_of(const ConfigValue& v, double low, double below) {
  const double x = v.value.is_number() ? v.value.get<double>() : std::nan("");
  if (low <= x && x < below)
    return x;
  v.must_be(below == infinity ? fmt::format("a number of at least {}", low)
                              : fmt::format("a number from {} to below {}", low, below));
}

// Field: double, or an optional one
template <class Field>
Read number(In<Field> field, double low = 0, double below = infinity) {
  return [=](const ConfigValue& v, Draft& d) { *field(d) = number_of(v, low, below); };
}

Read positive(In<double> field) {
  return [field](const ConfigValue& v, Draft& d) {
    *field(d) = number_of(v, 0, infinity);
    if (*field(d) == 0)
      v.must_be("a number above 0");
  };
}

// 5e8 is a count too.
template <class Field>
Read count(In<Field> field, int64_t low, int64_t high = largest) {
  return [=](const ConfigValue& v, Draft& d) {
    const double x = v.value.is_number() ? v.value.get<double>() : std::nan("");
    if (!(static_cast<double>(low) <= x && x <= static_cast<double>(high) && x == std::floor(x)))
      v.must_be(fmt::format("a whole number from {} to {}", low, high));
    *field(d) = static_cast<Field>(x);
  };
}

// A word that one of our parse functions knows.
template <class Field, class Parse>
Read word(In<Field> field, Parse parse) {
  return [=](const ConfigValue& v, Draft& d) {
    if (!v.value.is_string())
      v.must_be("a word in quotes");
    try {
      *field(d) = parse(v.value.get<std::string>());
    } catch (const Error& e) {
      fail(ErrorKind::usage, "{}: {}", v.path, e.what());
    }
  };
}

std::string any_word(const std::string& text) {
  return text;
}

Read betas(In<std::optional<std::vector<double>>> field) {
  return [field](const ConfigValue& v, Draft& d) {
    std::vector<double> two;
    if (v.value.is_array() && v.value.size() == 2)
      for (const auto& x : v.value)
        two.push_back(x.is_number() ? x.get<double>() : std::nan(""));
    const bool ok = two.size() == 2 && 0 <= two[0] && two[0] < 1 && 0 <= two[1] && two[1] < 1;
    if (!ok)
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

Checks parse_checks(const std::string& text) {
  for (const auto& [name, checks] : {std::pair{"never", Checks::never}, {"always", Checks::always}})
    if (text == name)
      return checks;
  fail(ErrorKind::usage, "\"{}\" is none of never, always", text);
}

bool parse_zero1_reduce(const std::string& text) {
  check(text == "reduce_scatter" || text == "all_reduce",
        "\"{}\" is neither reduce_scatter nor all_reduce",
        text);
  return text == "all_reduce";
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

using Rows = std::vector<ConfigKey>;

Rows training_keys() {
  return {
      {"train_batch_size", count<int64_t>([](Draft& d) { return &d.config.batch.train; }, 1)},
      {"train_micro_batch_size_per_gpu",
       count<int64_t>([](Draft& d) { return &d.config.batch.micro; }, 1)},
      {"gradient_accumulation_steps",
       count<int64_t>([](Draft& d) { return &d.config.batch.accumulation; }, 1, 1 << 20)},
      {"steps_per_print", count<int64_t>([](Draft& d) { return &d.config.steps_per_print; }, 1)},
      {"gradient_clipping", number<double>([](Draft& d) { return &d.config.engine.clip; })},
      {"prescale_gradients", flag([](Draft& d) { return &d.config.engine.prescale_gradients; })},
      {"gradient_predivide_factor", positive([](Draft& d) { return &d.config.engine.predivide; })},
      {"communication_data_type", read_communication},
      {"data_types.grad_accum_dtype", only("fp32")},
      {"on_nonfinite",
       word<OnNonFinite>([](Draft& d) { return &d.config.engine.on_nonfinite; },
                         parse_on_nonfinite)},
      {"elastic_determinism", flag([](Draft& d) { return &d.config.engine.elastic_determinism; })},
      {"comm.reduction",
       word<Algorithm>([](Draft& d) { return &d.config.engine.reduction; }, parse_algorithm)},
      {"comm.timeout_seconds", positive([](Draft& d) { return &d.config.comm.timeout; })},
      {"comm.check", word<Checks>([](Draft& d) { return &d.config.comm.checks; }, parse_checks)},
  };
}

Rows zero_keys() {
  return {
      {"zero_optimization.stage", read_stage},
      {"zero_optimization.overlap_comm", flag([](Draft& d) { return &d.config.engine.overlap; })},
      {"zero_optimization.contiguous_gradients", only(true)},
      {"zero_optimization.reduce_bucket_size",
       count<int64_t>([](Draft& d) { return &d.config.bucket_elements; }, 1)},
      {"zero_optimization.allgather_bucket_size",
       refused("isn't supported: parameters are gathered in the buckets of reduce_bucket_size")},
      {"zero_optimization.sub_group_size", refused()},
      {"zero_optimization.stage3_prefetch_bucket_size",
       count<int64_t>([](Draft& d) { return &d.config.engine.prefetch_elements; }, 0)},
      {"zero_optimization.stage3_param_persistence_threshold",
       count<int64_t>([](Draft& d) { return &d.config.engine.persistent_elements; }, 0)},
      {"zero_optimization.stage3_max_live_parameters",
       count<int64_t>([](Draft& d) { return &d.config.engine.max_live_elements; }, 0)},
      {"zero_optimization.stage3_max_reuse_distance", only(0)},
      {"zero_optimization.partition",
       word<PartitionKind>([](Draft& d) { return &d.config.engine.partition; }, parse_partition)},
      {"zero_optimization.accumulation",
       word<Accumulation>([](Draft& d) { return &d.config.engine.accumulation; },
                          parse_accumulation)},
      {"zero_optimization.zero1_reduce",
       word<bool>([](Draft& d) { return &d.config.engine.zero1_all_reduce; }, parse_zero1_reduce)},
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
      {"fp16.loss_scale",
       number<double>([](Draft& d) { return &d.config.engine.loss_scale.fixed; }, 0, 0x1p100)},
      {"fp16.initial_scale_power",
       count<int>([](Draft& d) { return &d.config.engine.loss_scale.initial_power; }, 0, 100)},
      {"fp16.loss_scale_window",
       count<int>([](Draft& d) { return &d.config.engine.loss_scale.window; }, 1, 1 << 30)},
      {"fp16.hysteresis",
       count<int>([](Draft& d) { return &d.config.engine.loss_scale.hysteresis; }, 1, 1 << 30)},
      {"fp16.consecutive_hysteresis",
       flag([](Draft& d) { return &d.config.engine.loss_scale.consecutive_hysteresis; })},
      {"fp16.min_loss_scale",
       positive([](Draft& d) { return &d.config.engine.loss_scale.minimum; })},
      {"fp16.auto_cast", only(false)},
      {"bf16.enabled", flag([](Draft& d) { return &d.bf16; })},
      {"bf16.check_grad_overflow", only(true)},
  };
}

Rows optimizer_keys() {
  using Optional = std::optional<double>;
  return {
      {"optimizer.type", word<std::string>([](Draft& d) { return &d.optimizer; }, any_word)},
      {"optimizer.params.lr", number<Optional>([](Draft& d) { return &d.lr; })},
      {"optimizer.params.betas", betas([](Draft& d) { return &d.betas; })},
      {"optimizer.params.eps", number<Optional>([](Draft& d) { return &d.eps; }, 1e-300)},
      {"optimizer.params.weight_decay", number<Optional>([](Draft& d) { return &d.weight_decay; })},
      {"optimizer.params.momentum", number<Optional>([](Draft& d) { return &d.momentum; }, 0, 1)},
      {"optimizer.params.nesterov",
       [](const ConfigValue& v, Draft& d) {
         if (!v.value.is_boolean())
           v.must_be("true or false");
         d.nesterov = v.value.get<bool>();
       }},
      {"optimizer.params.bias_correction", only(true)},
      {"optimizer.params.amsgrad", only(false)},
      {"optimizer.params.adam_w_mode",
       refused("isn't read: say \"AdamW\" or \"Adam\" as optimizer.type")},
      {"optimizer.params.torch_adam", only(false)},
  };
}

Rows scheduler_keys() {
  return {
      {"scheduler.type", word<std::string>([](Draft& d) { return &d.scheduler; }, any_word)},
      {"scheduler.params.warmup_min_lr", number<double>([](Draft& d) { return &d.start_lr; })},
      {"scheduler.params.warmup_max_lr",
       number<std::optional<double>>([](Draft& d) { return &d.max_lr; })},
      {"scheduler.params.warmup_num_steps",
       count<int64_t>([](Draft& d) { return &d.config.schedule.warmup; }, 1)},
      {"scheduler.params.warmup_type",
       word<std::string>([](Draft& d) { return &d.warmup_type; }, any_word)},
      {"scheduler.params.total_num_steps",
       count<int64_t>([](Draft& d) { return &d.config.schedule.steps; }, 1)},
      {"scheduler.params.decay_num_steps",
       count<int64_t>([](Draft& d) { return &d.config.schedule.decay; }, 1)},
      {"scheduler.params.min_lr", number<double>([](Draft& d) { return &d.end_lr; })},
      {"scheduler.params.warmup_min_ratio",
       number<double>([](Draft& d) { return &d.start_ratio; }, 0, 1)},
      {"scheduler.params.cos_min_ratio",
       number<double>([](Draft& d) { return &d.end_ratio; }, 0, 1)},
  };
}

// Known, not there yet: their "off" is all that may be said.
Rows later_keys() {
  Rows rows = {
      {"activation_checkpointing.partition_activations",
       only(false,
            "needs a tensor-parallel group: data-parallel ranks hold different activations")},
      {"activation_checkpointing.cpu_checkpointing", only(false)},
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
    for (const auto& rows : {training_keys,
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

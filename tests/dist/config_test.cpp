// The JSON configuration: every key does what it says or is refused, and nothing is read as
// something else.
#include "dist/config/config.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>

#include "dist/config/keys.h"
#include "tests/core/temporary_folder.h"
#include "tests/errors.h"

namespace sg::dist {
namespace {

using test::error_of;

Config parse(const std::string& text) {
  return parse_config(text, "ds.json");
}

// {"a": {"b": value}} for "a.b"
std::string nested(const std::string& path, const std::string& value) {
  std::string text = value;
  for (size_t end = path.size(); end != std::string::npos;) {
    const size_t dot = path.rfind('.', end - 1);
    text = "{\"" + path.substr(dot + 1, end - dot - 1) + "\": " + text + "}";
    end = dot;
  }
  return text;
}

struct Effect {
  const char* path;
  const char* text;  // a whole file; null: `path` alone with `value`
  const char* value;
  bool (*holds)(const Config&);
};

#define HOLDS(condition) [](const Config& c) { return condition; }
const Effect effects[] = {
    {"train_batch_size", nullptr, "12", HOLDS(settle(c.batch, 3).micro == 4)},
    {"train_micro_batch_size_per_gpu", nullptr, "4", HOLDS(settle(c.batch, 3).train == 12)},
    {"gradient_accumulation_steps", nullptr, "4", HOLDS(c.options(2).micro_steps == 4)},
    {"steps_per_print", nullptr, "7", HOLDS(c.steps_per_print == 7)},
    {"gradient_clipping", nullptr, "0.5", HOLDS(c.engine.clip == 0.5)},
    {"prescale_gradients", nullptr, "true", HOLDS(c.engine.prescale_gradients)},
    {"gradient_predivide_factor", nullptr, "2.5", HOLDS(c.engine.predivide == 2.5)},
    {"communication_data_type", nullptr, "\"fp16\"", HOLDS(c.engine.communication == DType::f16)},
    {"elastic_determinism", nullptr, "true", HOLDS(c.engine.elastic_determinism)},
    {"on_nonfinite", nullptr, "\"skip\"", HOLDS(c.engine.on_nonfinite == OnNonFinite::skip)},
    {"comm.reduction", nullptr, "\"ring\"", HOLDS(c.engine.reduction == Algorithm::ring)},
    {"comm.timeout_seconds", nullptr, "2.5", HOLDS(c.comm.timeout == 2.5)},
    {"comm.check", nullptr, "\"never\"", HOLDS(c.comm.checks == Checks::never)},
    {"zero_optimization.stage", nullptr, "3", HOLDS(c.engine.engine == EngineKind::zero3)},
    {"zero_optimization.overlap_comm", nullptr, "false", HOLDS(!c.engine.overlap)},
    {"zero_optimization.reduce_bucket_size",
     nullptr,
     "5e8",
     HOLDS(c.engine.bucket_bytes == 2'000'000'000)},
    {"zero_optimization.stage3_prefetch_bucket_size",
     nullptr,
     "9",
     HOLDS(c.engine.prefetch_elements == 9)},
    {"zero_optimization.stage3_param_persistence_threshold",
     nullptr,
     "1e5",
     HOLDS(c.engine.persistent_elements == 100'000)},
    {"zero_optimization.stage3_max_live_parameters",
     nullptr,
     "1e9",
     HOLDS(c.engine.max_live_elements == 1'000'000'000)},
    {"zero_optimization.partition",
     nullptr,
     "\"contiguous\"",
     HOLDS(c.engine.partition == PartitionKind::contiguous)},
    {"zero_optimization.accumulation",
     nullptr,
     "\"ranks_first\"",
     HOLDS(c.engine.accumulation == Accumulation::ranks_first)},
    {"zero_optimization.zero1_reduce", nullptr, "\"all_reduce\"", HOLDS(c.engine.zero1_all_reduce)},
    {"fp16.enabled", nullptr, "true", HOLDS(c.engine.precision == DType::f16)},
    {"fp16.loss_scale", nullptr, "128", HOLDS(c.engine.loss_scale.fixed == 128)},
    {"fp16.initial_scale_power", nullptr, "9", HOLDS(c.engine.loss_scale.initial_power == 9)},
    {"fp16.loss_scale_window", nullptr, "50", HOLDS(c.engine.loss_scale.window == 50)},
    {"fp16.hysteresis", nullptr, "3", HOLDS(c.engine.loss_scale.hysteresis == 3)},
    {"fp16.consecutive_hysteresis",
     nullptr,
     "true",
     HOLDS(c.engine.loss_scale.consecutive_hysteresis)},
    {"fp16.min_loss_scale", nullptr, "0.5", HOLDS(c.engine.loss_scale.minimum == 0.5)},
    {"bf16.enabled", nullptr, "true", HOLDS(c.engine.precision == DType::bf16)},
    {"optimizer.type", nullptr, "\"Lion\"", HOLDS(c.engine.optimizer.type == "lion")},
    {"optimizer.params.lr",
     nullptr,
     "0.25",
     HOLDS(c.engine.lr == 0.25 && c.schedule.at(999) == 0.25)},
    {"optimizer.params.betas",
     nullptr,
     "[0.5, 0.75]",
     HOLDS(c.engine.optimizer.beta1 == 0.5 && c.engine.optimizer.beta2 == 0.75)},
    {"optimizer.params.eps", nullptr, "1e-5", HOLDS(c.engine.optimizer.eps == 1e-5)},
    {"optimizer.params.weight_decay",
     nullptr,
     "0.01",
     HOLDS(c.engine.optimizer.weight_decay == 0.01)},
    {"optimizer.params.momentum",
     R"({"optimizer": {"type": "SGD", "params": {"momentum": 0.5}}})",
     nullptr,
     HOLDS(c.engine.optimizer.type == "sgd" && c.engine.optimizer.momentum == 0.5)},
    {"optimizer.params.nesterov",
     R"({"optimizer": {"type": "sgd", "params": {"momentum": 0.5, "nesterov": true}}})",
     nullptr,
     HOLDS(c.engine.optimizer.nesterov)},
    {"scheduler.type",
     nullptr,
     "\"WarmupLR\"",
     HOLDS(c.schedule.kind == optim::ScheduleKind::warmup_lr)},
    {"scheduler.params.warmup_min_lr",
     R"({"scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": 1e-5}}})",
     nullptr,
     HOLDS(c.schedule.at(0) == 1e-5)},
    {"scheduler.params.warmup_max_lr",
     R"({"scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 2}}})",
     nullptr,
     HOLDS(c.engine.lr == 2 && c.schedule.at(9999) == 2)},
    {"scheduler.params.warmup_num_steps",
     R"({"scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 5}}})",
     nullptr,
     HOLDS(c.schedule.warmup == 5)},
    {"scheduler.params.warmup_type",
     R"({"scheduler": {"type": "WarmupLR", "params": {"warmup_type": "linear"}}})",
     nullptr,
     HOLDS(!c.schedule.log_warmup)},
    {"scheduler.params.total_num_steps",
     R"({"scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": 77}}})",
     nullptr,
     HOLDS(c.schedule.steps == 77)},
    {"scheduler.params.decay_num_steps",
     R"({"scheduler": {"type": "wsd", "params": {"decay_num_steps": 7}}})",
     nullptr,
     HOLDS(c.schedule.kind == optim::ScheduleKind::wsd && c.schedule.decay == 7)},
    {"scheduler.params.min_lr",
     R"({"scheduler": {"type": "wsd", "params": {"min_lr": 1e-5}}})",
     nullptr,
     HOLDS(c.schedule.min_lr == 1e-5)},
    {"scheduler.params.warmup_min_ratio",
     R"({"scheduler": {"type": "WarmupCosineLR", "params": {"warmup_min_ratio": 0.5}}})",
     nullptr,
     HOLDS(c.schedule.start_lr == 0.5e-3)},
    {"scheduler.params.cos_min_ratio",
     R"({"scheduler": {"type": "WarmupCosineLR", "params": {"cos_min_ratio": 0.5}}})",
     nullptr,
     HOLDS(c.schedule.min_lr == 0.5e-3)},
    {"recompute",
     nullptr,
     "\"every:3\"",
     HOLDS(c.engine.recompute == (RecomputePolicy{RecomputeKind::every, 3}))},
    {"zero_optimization.offload_optimizer.device",
     R"({"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}})",
     nullptr,
     HOLDS(c.engine.offload_optimizer == OffloadDevice::cpu)},
    {"activation_checkpointing.cpu_checkpointing",
     nullptr,
     "true",
     HOLDS(c.engine.cpu_checkpointing)},
};
#undef HOLDS

// Keys that may only say what happens anyway: the value that they may have (null: none), one that
// they may not.
struct Later {
  const char* path;
  const char* allowed;
  const char* refused;
  const char* words = "isn't supported";
};
const Later later[] = {
    {"data_types.grad_accum_dtype", "\"fp32\"", "\"bf16\""},
    {"zero_optimization.contiguous_gradients", "true", "false"},
    {"zero_optimization.allgather_bucket_size", nullptr, "5e8", "reduce_bucket_size"},
    {"zero_optimization.sub_group_size", nullptr, "1e9"},
    {"zero_optimization.stage3_max_reuse_distance", "0", "1e9"},
    {"zero_optimization.tile_linear", "0", "1000"},
    {"zero_optimization.stage3_gather_16bit_weights_on_model_save", "false", "true"},
    {"zero_optimization.delayed_update.enabled", "false", "true"},
    {"zero_optimization.delayed_update.after_steps", "40", "41"},
    {"zero_optimization.reduce_scatter", "true", "false", "zero1_reduce"},
    {"zero_optimization.allgather_partitions", "true", "false"},
    {"zero_optimization.round_robin_gradients", "false", "true"},
    {"zero_optimization.load_from_fp32_weights", "true", "false"},
    {"zero_optimization.elastic_checkpoint", "true", "false"},
    {"zero_optimization.ignore_unused_parameters", "true", "false"},
    {"zero_optimization.offload_optimizer.pin_memory", "true", "false"},
    {"zero_optimization.offload_optimizer.buffer_count", "4", "5"},
    {"zero_optimization.offload_optimizer.nvme_path", nullptr, "\"/nvme\""},
    {"zero_optimization.offload_optimizer.ratio", "1.0", "0.5"},
    {"zero_optimization.offload_optimizer.pipeline_read", "false", "true"},
    {"zero_optimization.offload_optimizer.pipeline_write", "false", "true"},
    {"zero_optimization.offload_param.device", "\"none\"", "\"nvme\""},
    {"zero_optimization.offload_param.pin_memory", "true", "false"},
    {"zero_optimization.offload_param.buffer_count", "5", "4"},
    {"zero_optimization.offload_param.nvme_path", nullptr, "\"/nvme\""},
    {"zero_optimization.offload_param.buffer_size", "1e8", "1e7"},
    {"fp16.auto_cast", "false", "true"},
    {"bf16.check_grad_overflow", "true", "false"},
    {"optimizer.params.bias_correction", "true", "false"},
    {"optimizer.params.amsgrad", "false", "true"},
    {"optimizer.params.adam_w_mode", nullptr, "true", "optimizer.type"},
    {"optimizer.params.torch_adam", "false", "true"},
    {"activation_checkpointing.partition_activations", "false", "true", "tensor-parallel"},
    {"activation_checkpointing.contiguous_memory_optimization", "false", "true"},
    {"activation_checkpointing.number_checkpoints", "null", "4"},
    {"activation_checkpointing.synchronize_checkpoint_boundary", "false", "true"},
    {"activation_checkpointing.profile", "false", "true"},
    {"aio.block_size", "1048576", "4096"},
    {"aio.queue_depth", "8", "16"},
    {"aio.intra_op_parallelism", "1", "2"},
    {"aio.single_submit", "false", "true"},
    {"aio.overlap_events", "true", "false"},
    {"wall_clock_breakdown", "false", "true"},
    {"memory_breakdown", "false", "true"},
    {"dump_state", "false", "true"},
    {"sparse_gradients", "false", "true"},
    {"zero_allow_untested_optimizer", "false", "true"},
    {"amp.enabled", "false", "true", "bf16"},
    {"flops_profiler.enabled", "false", "true"},
    {"flops_profiler.profile_step", nullptr, "1"},
    {"flops_profiler.module_depth", nullptr, "-1"},
    {"flops_profiler.top_modules", nullptr, "1"},
    {"flops_profiler.detailed", nullptr, "true"},
    {"flops_profiler.output_file", nullptr, "null"},
    {"comms_logger.verbose", nullptr, "true"},
    {"comms_logger.prof_all", nullptr, "true"},
    {"comms_logger.debug", nullptr, "true"},
    {"comms_logger.prof_ops", nullptr, "[]"},
    {"tensorboard.output_path", nullptr, "\"logs\""},
    {"tensorboard.job_name", nullptr, "\"run\""},
    {"csv_monitor.output_path", nullptr, "\"logs\""},
    {"csv_monitor.job_name", nullptr, "\"run\""},
    {"wandb.team", nullptr, "\"us\""},
    {"wandb.group", nullptr, "\"us\""},
    {"wandb.project", nullptr, "\"it\""},
    {"comms_logger.enabled", "false", "true"},
    {"tensorboard.enabled", "false", "true"},
    {"csv_monitor.enabled", "false", "true"},
    {"wandb.enabled", "false", "true"},
    {"elasticity", nullptr, "{\"enabled\": true}"},
    {"autotuning", nullptr, "{}"},
    {"curriculum_learning", nullptr, "{}"},
    {"data_efficiency", nullptr, "{}"},
    {"sparse_attention", nullptr, "{}"},
    {"compression_training", nullptr, "{}"},
    {"pipeline", nullptr, "{}"},
    {"hybrid_engine", nullptr, "{}"},
};

TEST(Config, EveryKeyIsTestedOnce) {
  std::multiset<std::string> tested, known;
  for (const Effect& e : effects)
    tested.insert(e.path);
  for (const Later& l : later)
    tested.insert(l.path);
  for (const ConfigKey& key : config_keys())
    known.insert(key.path);
  EXPECT_EQ(tested, known);
}

TEST(Config, KeysTakeEffect) {
  for (const Effect& e : effects) {
    const std::string text = e.text ? e.text : nested(e.path, e.value);
    EXPECT_FALSE(e.holds(parse("{}"))) << e.path;
    const Config config = parse(text);
    EXPECT_TRUE(e.holds(config)) << text;
    EXPECT_TRUE(config.gives(e.path)) << text;
  }
}

TEST(Config, WhatIsntThereYetIsRefusedByNameAndItsOffIsNot) {
  for (const Later& l : later) {
    if (l.allowed) {
      EXPECT_NO_THROW(parse(nested(l.path, l.allowed))) << l.path;
    }
    const std::string message =
        error_of(ErrorKind::usage, [&] { parse(nested(l.path, l.refused)); });
    for (const char* words : {"ds.json: ", l.path, l.words})
      EXPECT_NE(message.find(words), std::string::npos) << message;
  }
}

TEST(Config, DefaultsAreThoseOfTheOptions) {
  const Config none = parse("{}");
  EXPECT_EQ(none.engine.engine, EngineKind::ddp);
  EXPECT_EQ(none.engine.clip, 0);
  EXPECT_EQ(none.engine.optimizer.beta2, Options().optimizer.beta2);
  EXPECT_EQ(none.steps_per_print, 10);
  // An optimizer is taken as DeepSpeed means it.
  const Config adam = parse(R"({"optimizer": {"type": "Adam"}})");
  EXPECT_EQ(adam.engine.optimizer.type, "adam");
  EXPECT_EQ(adam.engine.optimizer.beta2, 0.999);
  EXPECT_EQ(adam.engine.optimizer.weight_decay, 0);
  EXPECT_EQ(parse(R"({"scheduler": {"type": "WarmupLR"}})").schedule.warmup, 1000);
}

const std::pair<std::string, std::string> mistakes[] = {
    {R"({"zero_optimization": {"overlap_com": true}})",
     "there is no key zero_optimization.overlap_com; the nearest is "
     "zero_optimization.overlap_comm"},
    {R"({"stage": 2})", "there is no key stage; the nearest is zero_optimization.stage"},
    {R"({"bf16": {"enabled": 1}})", "bf16.enabled must be true or false, not 1"},
    {R"({"bf16": true})", "bf16 must be an object, with keys of its own, not true"},
    {R"({"gradient_clipping": "high"})",
     "gradient_clipping must be a number of at least 0, not \"high\""},
    {R"({"gradient_clipping": -1})", "gradient_clipping must be a number of at least 0, not -1"},
    {R"({"train_batch_size": -8})", "train_batch_size must be a whole number from 1 to"},
    {R"({"train_batch_size": 2.5})", "not 2.5"},
    {R"({"train_batch_size": 1e30})", "not 1e+30"},
    {R"({"train_batch_size": "auto"})", "train_batch_size must be a whole number"},
    {R"({"train_batch_size": "auto"})", "Hugging Face's Trainer fills in"},
    {R"({"zero_optimization": {"reduce_bucket_size": "auto"}})", "leave the key out"},
    {R"({"zero_optimization": {"sub_group_size": "auto"}})", "leave the key out"},
    {R"({"bf16": {"enabled": "auto"}})", "Hugging Face's Trainer fills in"},
    {R"({"optimizer": {"params": {"betas": "auto"}}})", "Hugging Face's Trainer fills in"},
    {R"({"optimizer": {"type": "auto"}})", "Hugging Face's Trainer"},
    {R"({"scheduler": {"type": "auto"}})", "Hugging Face's Trainer"},
    {R"({"optimizer.type": "SGD"})",
     "there is no key \"optimizer.type\": a section is an object of its own, {\"optimizer\": "
     "{\"type\": …}}"},
    {R"({"optimizer": {"params.lr": 0.5}})", "there is no key \"optimizer.params.lr\""},
    {R"({"zero_optimization": {"stage": 1}, "zero_optimization.stage": 3})",
     "there is no key \"zero_optimization.stage\""},
    {R"({"": 1})", "there is no key ; the top level has activation_checkpointing, aio"},
    {R"({"csv_monitor": {"path": "x"}})",
     "csv_monitor.path; csv_monitor has enabled, job_name, output_path"},
    {R"({"tensorbord": {"enabled": false}})",
     "there is no key tensorbord; the nearest is tensorboard"},
    {R"({"scheduler": {"type": "WarmupCosineLR",
                       "params": {"total_num_steps": 5, "warmup_num_steps": 10}}})",
     "scheduler.params.warmup_num_steps 10 is above scheduler.params.total_num_steps 5"},
    {R"({"scheduler": {"type": "wsd",
          "params": {"total_num_steps": 5, "warmup_num_steps": 3, "decay_num_steps": 3}}})",
     "warmup_num_steps 3 and scheduler.params.decay_num_steps 3 have no room"},
    {R"({"scheduler": {"type": "wsd", "params": {"min_lr": 1}}})",
     "scheduler.params.min_lr 1 is above"},
    {R"({"scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": 1}}})",
     "scheduler.params.warmup_min_lr 1 is above scheduler.params.warmup_max_lr 0.001"},
    {R"({"zero_optimization": {"stage": 4}})",
     "zero_optimization.stage must be 0, 1, 2, 3 or \"auto\", not 4"},
    {R"({"comm": {"reduction": "tree"}})", "comm.reduction: reduction: \"tree\""},
    {R"({"communication_data_type": "fp8"})",
     "must be null, \"fp32\", \"bf16\" or \"fp16\", not \"fp8\""},
    {R"({"comm": {"timeout_seconds": 0}})", "comm.timeout_seconds must be a number above 0, not 0"},
    {R"({"optimizer": {"params": {"betas": [0.9]}}})",
     "optimizer.params.betas must be two numbers from 0 to below 1"},
    {R"({"fp16": {"enabled": true}, "bf16": {"enabled": true}})",
     "fp16.enabled and bf16.enabled are both true"},
    {R"({"optimizer": {"type": "LAMB"}})",
     "optimizer.type \"LAMB\" isn't supported; there are SGD, Adam"},
    {R"({"optimizer": {"type": "SGD", "params": {"eps": 1}}})",
     "optimizer.params.eps 1 has no place in SGD"},
    {R"({"optimizer": {"type": "SGD", "params": {"nesterov": true}}})",
     "nesterov needs a momentum above 0"},
    {R"({"scheduler": {"type": "OneCycle"}})",
     "scheduler.type \"OneCycle\" isn't supported; there are WarmupLR"},
    {R"({"scheduler": {"params": {}}})", "scheduler has no type"},
    {R"({"scheduler": {"type": "WarmupLR", "params": {"warmup_type": "cubic"}}})",
     "\"cubic\" is neither log nor"},
    {R"({"scheduler": {"type": "WarmupLR", "params": {"cos_min_ratio": 0}}})",
     "cos_min_ratio 0 has no place in"},
    {R"({"optimizer": {"params": {"lr": 0.1}}, "scheduler": {"type": "WarmupDecayLR"}})",
     "optimizer.params.lr 0.1 and scheduler.params.warmup_max_lr 0.001 (its default) contradict "
     "each other"},
    {R"({"gradient_clipping": 1, "gradient_clipping": 2})",
     "the key gradient_clipping is there twice"},
    {R"({"fp16": {"loss_scale": 1e400}})", "at fp16.loss_scale"},
    {R"({"fp16": {"loss_scale": NaN}})", "at fp16.loss_scale"},
    {"\xEF\xBB\xBF{}", "byte-order mark"},
    {"[]", "the top level must be an object, not []"},
    {"", "not JSON"},
    {R"({"gradient_clipping": 1} x)", "not JSON"},
};

TEST(Config, MistakesNameTheirKey) {
  for (const auto& [text, words] : mistakes) {
    const std::string message = error_of(ErrorKind::usage, [&] { parse(text); });
    EXPECT_NE(message.find(words), std::string::npos) << text << ": " << message;
    EXPECT_EQ(message.rfind("ds.json: ", 0), 0u) << message;
  }
}

TEST(Config, AllMistakesComeAtOnce) {
  const std::string message = error_of(ErrorKind::usage, [] {
    parse(
        R"({"train_batch_size": "auto", "gradient_clipping": -1, "gradient_clipping": -2,
              "stagee": 2,
              "optimizer": {"type": "SGD",
                            "params": {"eps": 1, "betas": [0.9, 0.99], "lr": "high"}},
              "optimizer.type": "Lion", "bf16": {"enabled": true}, "fp16": {"enabled": true},
              "scheduler": {"type": "WarmupLR", "params": {"warmup_type": "cubic"}}})");
  });
  EXPECT_EQ(message.rfind("ds.json: 10 mistakes:\n", 0), 0u) << message;
  EXPECT_EQ(std::count(message.begin(), message.end(), '\n'), 10) << message;
  for (const char* words : {"\n  train_batch_size must",
                            "\n  gradient_clipping must be",
                            "\n  the key gradient_clipping is there twice",
                            "\n  there is no key stagee",
                            "\n  optimizer.params.eps 1 has no place in SGD",
                            "\n  optimizer.params.betas [0.9,0.99] has no place in SGD",
                            "\n  optimizer.params.lr must be",
                            "\n  there is no key \"optimizer.type\"",
                            "\n  fp16.enabled and bf16.enabled",
                            "\n  scheduler.params.warmup_type \"cubic\""})
    EXPECT_NE(message.find(words), std::string::npos) << words << "\n" << message;
}

TEST(Config, NoPartOfAFileIsTakenForIt) {
  const std::string whole =
      R"({"train_batch_size": 8, "optimizer": {"params": {"betas": [0.9, 0.5], "lr": 1}},
          "fp16": {"enabled": true}})";
  EXPECT_NO_THROW(parse(whole));
  for (size_t length = 0; length < whole.size(); ++length)
    error_of(ErrorKind::usage, [&] { parse(whole.substr(0, length)); });
}

TEST(Config, DepthAndSizeAreBounded) {
  const std::string deep = std::string(100'000, '[') + std::string(100'000, ']');
  const std::string message = error_of(ErrorKind::usage, [&] { parse("{\"aio\": " + deep + "}"); });
  EXPECT_NE(message.find("nested deeper than 16 at aio"), std::string::npos) << message;
  const test::TemporaryFolder folder;
  test::put(folder / "big.json", "");
  std::filesystem::resize_file(folder / "big.json", uint64_t{1} << 30);
  const std::string big = error_of(ErrorKind::usage, [&] { read_config(folder / "big.json"); });
  EXPECT_NE(big.find("big.json: 1.00 GiB"), std::string::npos) << big;
  error_of(ErrorKind::bad_input, [&] { read_config(folder / "absent.json"); });
  test::put(folder / "ds.json", R"({"zero_optimization": {"stage": 1}})");
  EXPECT_EQ(read_config(folder / "ds.json").engine.engine, EngineKind::zero1);
}

}  // namespace
}  // namespace sg::dist

// The settings whose fields lie outside of Options: of the optimizer, the loss scale, the schedule,
// the batch and the group; and what is made of all tables together.
#pragma once
#include <map>
#include <string>

#include "dist/comm/connect.h"
#include "dist/options.h"
#include "optim/schedules.h"

namespace sg::dist {

// Sequences: train = micro · accumulation · ranks. 0: not given.
struct BatchSizes {
  int64_t train = 0, micro = 0, accumulation = 0;
};

inline constexpr Setting<BatchSizes> batch_settings[] = {
    {.name = "micro_batch",
     .field = At<&BatchSizes::micro>::of,
     .keys = {"train_micro_batch_size_per_gpu"},
     .implied_by = {"train_batch_size"},  // which leaves it to the arithmetic
     .option = "--micro-batch",
     .help = "sequences in one forward pass of a rank",
     .range = {.low = 1, .high = largest_option},
     .topic = Topic::batch,
     .decides = Decides::bits},
    {.name = "global_batch",
     .field = At<&BatchSizes::train>::of,
     .keys = {"train_batch_size"},
     .own_reader = true,
     .option = "--global-batch",
     .help = "sequences in a step of all ranks; 0: micro-batch times ranks",
     .range = {.high = largest_option},
     .topic = Topic::batch,
     .decides = Decides::bits,
     .shown_in = "micro_steps"},
    {.name = "accumulation_steps",
     .field = At<&BatchSizes::accumulation>::of,
     .keys = {"gradient_accumulation_steps"},
     .range = {.low = 1, .high = 1 << 20},
     .decides = Decides::bits,
     .shown_in = "micro_steps"},
};

inline constexpr const char* optimizer_words[] = {"adamw", "adam", "sgd", "lion"};

// Whose ranges the optimizer and the loss scaler check themselves.
inline constexpr Setting<optim::OptimizerOptions> optimizer_settings[] = {
    {.name = "optimizer",
     .field = At<&optim::OptimizerOptions::type>::of,
     .keys = {"optimizer.type"},
     .own_reader = true,
     .implied_by = {"optimizer"},
     .option = "--optimizer",
     .help = "adamw, adam, sgd or lion",
     .one_of = optimizer_words,
     .topic = Topic::optimizer,
     .decides = Decides::bits,
     .shown_in = "optimizer"},
    {.name = "beta1",
     .field = At<&optim::OptimizerOptions::beta1>::of,
     .keys = {"optimizer.params.betas"},
     .own_reader = true,
     .implied_by = {"optimizer"},
     .option = "--beta1",
     .help = "of adamw, adam, lion",
     .range = {.high = 1, .below_high = true},
     .topic = Topic::rates,
     .decides = Decides::bits,
     .shown_in = "optimizer"},
    {.name = "beta2",
     .field = At<&optim::OptimizerOptions::beta2>::of,
     .keys = {"optimizer.params.betas"},
     .own_reader = true,
     .implied_by = {"optimizer"},
     .option = "--beta2",
     .help = "of adamw, adam, lion",
     .range = {.high = 1, .below_high = true},
     .topic = Topic::rates,
     .decides = Decides::bits,
     .shown_in = "optimizer"},
    {.name = "eps",
     .field = At<&optim::OptimizerOptions::eps>::of,
     .keys = {"optimizer.params.eps"},
     .own_reader = true,
     .implied_by = {"optimizer"},
     .decides = Decides::bits,
     .shown_in = "optimizer"},
    {.name = "weight_decay",
     .field = At<&optim::OptimizerOptions::weight_decay>::of,
     .keys = {"optimizer.params.weight_decay"},
     .own_reader = true,
     .implied_by = {"optimizer"},
     .option = "--weight-decay",
     .help = "of matrices; norms and biases never decay",
     .topic = Topic::rates,
     .decides = Decides::bits,
     .shown_in = "optimizer"},
    {.name = "momentum",
     .field = At<&optim::OptimizerOptions::momentum>::of,
     .keys = {"optimizer.params.momentum"},
     .own_reader = true,
     .implied_by = {"optimizer"},
     .decides = Decides::bits,
     .shown_in = "optimizer"},
    {.name = "nesterov",
     .field = At<&optim::OptimizerOptions::nesterov>::of,
     .keys = {"optimizer.params.nesterov"},
     .own_reader = true,
     .implied_by = {"optimizer"},
     .decides = Decides::bits,
     .shown_in = "optimizer"},
};

// Read only where the precision is fp16.
inline constexpr Setting<optim::LossScaleOptions> loss_scale_settings[] = {
    {.name = "loss_scale.fixed",
     .field = At<&optim::LossScaleOptions::fixed>::of,
     .keys = {"fp16.loss_scale"},
     .implied_by = {"fp16"},
     .range = {.high = 0x1p100, .below_high = true},
     .decides = Decides::bits,
     .shown_in = "loss_scale"},
    {.name = "loss_scale.initial_power",
     .field = At<&optim::LossScaleOptions::initial_power>::of,
     .keys = {"fp16.initial_scale_power"},
     .implied_by = {"fp16"},
     .range = {.high = 100},
     .decides = Decides::bits,
     .shown_in = "loss_scale"},
    {.name = "loss_scale.window",
     .field = At<&optim::LossScaleOptions::window>::of,
     .keys = {"fp16.loss_scale_window"},
     .implied_by = {"fp16"},
     .range = {.low = 1, .high = 1 << 30},
     .decides = Decides::bits,
     .shown_in = "loss_scale"},
    {.name = "loss_scale.hysteresis",
     .field = At<&optim::LossScaleOptions::hysteresis>::of,
     .keys = {"fp16.hysteresis"},
     .implied_by = {"fp16"},
     .range = {.low = 1, .high = 1 << 30},
     .decides = Decides::bits,
     .shown_in = "loss_scale"},
    {.name = "loss_scale.consecutive_hysteresis",
     .field = At<&optim::LossScaleOptions::consecutive_hysteresis>::of,
     .keys = {"fp16.consecutive_hysteresis"},
     .implied_by = {"fp16"},
     .decides = Decides::bits,
     .shown_in = "loss_scale"},
    {.name = "loss_scale.minimum",
     .field = At<&optim::LossScaleOptions::minimum>::of,
     .keys = {"fp16.min_loss_scale"},
     .implied_by = {"fp16"},
     .range = {.above_low = true},
     .decides = Decides::bits,
     .shown_in = "loss_scale"},
};

template <>
struct Word<optim::ScheduleKind> {
  static const char* name(optim::ScheduleKind kind) { return optim::name_of(kind); }
  static optim::ScheduleKind parse(const std::string& text) { return optim::parse_schedule(text); }
};

// An optimizer of the JSON without a scheduler has a constant rate.
inline constexpr Setting<optim::Schedule> schedule_settings[] = {
    {.name = "schedule",
     .field = At<&optim::Schedule::kind>::of,
     .keys = {"scheduler.type"},
     .own_reader = true,
     .implied_by = {"optimizer", "scheduler"},
     .option = "--schedule",
     .help = "learning rate after the warm-up: cosine, linear, constant, wsd, or DeepSpeed's "
             "WarmupLR, WarmupDecayLR, WarmupCosineLR",
     .topic = Topic::rates,
     .decides = Decides::bits,
     .shown_in = "schedule"},
    {.name = "lr",
     .field = At<&optim::Schedule::lr>::of,
     .keys = {"optimizer.params.lr", "scheduler.params.warmup_max_lr"},
     .own_reader = true,
     .implied_by = {"optimizer", "scheduler"},
     .option = "--lr",
     .help = "largest learning rate",
     .topic = Topic::rates,
     .decides = Decides::bits,
     .shown_in = "schedule"},
    {.name = "min_lr",
     .field = At<&optim::Schedule::min_lr>::of,
     .keys = {"scheduler.params.cos_min_ratio", "scheduler.params.min_lr"},
     .own_reader = true,
     .implied_by = {"optimizer", "scheduler"},
     .option = "--min-lr",
     .help = "last learning rate",
     .topic = Topic::rates,
     .decides = Decides::bits,
     .shown_in = "schedule"},
    {.name = "warmup",
     .field = At<&optim::Schedule::warmup>::of,
     .keys = {"scheduler.params.warmup_num_steps"},
     .own_reader = true,
     .implied_by = {"optimizer", "scheduler"},
     .option = "--warmup",
     .help = "steps in which it rises from 0; 100, or all where there are fewer",
     .shown_default = "",
     .range = {.high = largest_option},
     .topic = Topic::rates,
     .decides = Decides::bits,
     .shown_in = "schedule"},
    {.name = "decay",
     .field = At<&optim::Schedule::decay>::of,
     .keys = {"scheduler.params.decay_num_steps"},
     .own_reader = true,
     .implied_by = {"scheduler"},
     .option = "--decay",
     .help = "wsd: steps in which it falls at the end; 0: a tenth of all",
     .range = {.high = largest_option},
     .topic = Topic::rates,
     .decides = Decides::bits,
     .shown_in = "schedule"},
    {.name = "schedule_steps",
     .field = At<&optim::Schedule::steps>::of,
     .keys = {"scheduler.params.total_num_steps"},
     .implied_by = {"scheduler"},
     .range = {.low = 1, .high = largest_option},
     .decides = Decides::bits,
     .shown_in = "steps"},
    {.name = "start_lr",
     .field = At<&optim::Schedule::start_lr>::of,
     .keys = {"scheduler.params.warmup_min_lr", "scheduler.params.warmup_min_ratio"},
     .own_reader = true,
     .implied_by = {"scheduler"},
     .decides = Decides::bits,
     .shown_in = "schedule"},
    {.name = "log_warmup",
     .field = At<&optim::Schedule::log_warmup>::of,
     .keys = {"scheduler.params.warmup_type"},
     .own_reader = true,
     .implied_by = {"scheduler"},
     .decides = Decides::bits,
     .shown_in = "schedule"},
};

inline constexpr const char* checks_words[] = {"never", "always"};
constexpr Words words_of(Checks) {
  return {"check", checks_words};
}

inline constexpr Setting<CommOptions> group_settings[] = {
    {.name = "ranks",
     .field = At<&CommOptions::ranks>::of,
     .option = "--ranks",
     .help = "thread ranks in this process; under mpirun or srun the world decides",
     .shown_default = "",
     .range = {.low = 1, .high = 64},
     .topic = Topic::group},
    {.name = "threads",
     .field = At<&CommOptions::device, &DeviceOptions::threads>::of,
     .option = "--threads",
     .help = "per rank; without it the processors are dealt to the ranks",
     .shown_default = "",
     .range = {.low = 1, .high = 1024},
     .topic = Topic::group},
    {.name = "device_memory",
     .field = At<&CommOptions::device, &DeviceOptions::capacity>::of,
     .option = "--device-memory",
     .help = "capacity of each rank's device, such as 512MiB",
     .shown_default = "unlimited",
     .form = Form::bytes,
     .topic = Topic::group},
    {.name = "host_memory",
     .field = At<&CommOptions::host_memory>::of,
     .option = "--host-memory",
     .help = "capacity of the host memory that this process's ranks use together, such as 2GiB",
     .shown_default = "unlimited",
     .form = Form::bytes,
     .topic = Topic::group},
    {.name = "comm_timeout",
     .field = At<&CommOptions::timeout>::of,
     .keys = {"comm.timeout_seconds"},
     .option = "--comm-timeout",
     .help = "seconds that a call waits for other ranks",
     .range = {.above_low = true},
     .topic = Topic::group},
    {.name = "comm_check",
     .field = At<&CommOptions::checks>::of,
     .keys = {"comm.check"},
     .topic = Topic::group},
    {.name = "link_bandwidth",
     .field = At<&CommOptions::link_bandwidth>::of,
     .option = "--link-bandwidth",
     .help = "bytes a second of an emulated link between thread ranks",
     .shown_default = "none",
     .form = Form::bytes,
     .topic = Topic::group},
    {.name = "link_latency",
     .field = At<&CommOptions::link_latency>::of,
     .option = "--link-latency",
     .help = "seconds per message on that link",
     .topic = Topic::group},
};

// Calls visit(rows, owner) for every table of an engine's settings.
template <class EngineOptions, class Visit>
void visit_engine(EngineOptions& options, const Visit& visit) {
  visit(std::span(engine_settings), options);
  visit(std::span(optimizer_settings), options.optimizer);
  visit(std::span(loss_scale_settings), options.loss_scale);
}

// Every setting of an engine that decides bits or calls as text, by name: what ranks must have in
// common.
std::map<std::string, std::string> fields_of(const Options& options);
// What decides the bits of a run of so many ranks, as receipts and checkpoints have it: entries of
// the rows' own, or of several together (`shown_in`).
std::map<std::string, std::string> numerics_of(const Options& options, int ranks);
std::map<std::string, std::string> numerics_of(const optim::Schedule& schedule);

}  // namespace sg::dist

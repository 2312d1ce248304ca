// What a run is and what it keeps: numerics, checkpoints.
#include <chrono>

#include "core/device.h"
#include "dist/numerics_rules.h"
#include "models/run/trainer.h"
#include "models/run/version.h"

namespace sg::models {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

std::string optimizer_text(const optim::OptimizerOptions& o) {
  if (o.type == "sgd")
    return fmt::format(
        "sgd momentum {} nesterov {} decay {}", o.momentum, o.nesterov, o.weight_decay);
  return fmt::format(
      "{} beta {} {} eps {} decay {}", o.type, o.beta1, o.beta2, o.eps, o.weight_decay);
}

std::string schedule_text(const optim::Schedule& s) {
  std::string text =
      fmt::format("{} lr {} to {} warmup {}", optim::name_of(s.kind), s.lr, s.min_lr, s.warmup);
  if (s.kind >= optim::ScheduleKind::warmup_lr)
    text += fmt::format(" {} from {}", s.log_warmup ? "log" : "linear", s.start_lr);
  if (s.kind == optim::ScheduleKind::wsd)
    text += s.decay > 0 ? fmt::format(" decay {}", s.decay) : std::string(" decay a tenth");
  return text;
}

std::string loss_scale_text(const optim::LossScaleOptions& o) {
  if (o.fixed > 0)
    return fmt::format("static {}", o.fixed);
  return fmt::format("from 2^{} window {} hysteresis {}{} minimum {}",
                     o.initial_power,
                     o.window,
                     o.hysteresis,
                     o.consecutive_hysteresis ? " consecutive" : "",
                     o.minimum);
}

}  // namespace

void Trainer::identify() {
  const SizeOptions& size = options_.size;
  const dist::Options& engine = options_.engine;
  identity_.model = family_.name + " " + size.size;
  identity_.engine = dist::name_of(engine.engine);
  identity_.precision = precision_name(engine.precision);
  identity_.sizes = {{"layers", *size.layers},
                     {"heads", *size.heads},
                     {"width", *size.width},
                     {"context", *size.context},
                     {"vocab", *size.vocab}};
  identity_.world = comm_.size();
  identity_.seed = options_.seed;
  identity_.steps = options_.steps;
  identity_.tokens_per_step = options_.global_batch * *size.context;
  auto& numerics = identity_.numerics;
  numerics["rules"] = std::to_string(dist::numerics_rules);
  for (const auto& [name, value] : identity_.sizes)
    numerics[name] = std::to_string(value);
  numerics["model"] = identity_.model;
  numerics["dropout"] = fmt::format("{}", size.dropout);
  numerics["tied"] = size.tied ? "on" : "off";
  numerics["data"] = data_.fingerprint();
  numerics["validation"] = fmt::format("{}", options_.data.val_fraction);
  numerics["seed"] = std::to_string(options_.seed);
  numerics["micro_batch"] = std::to_string(options_.micro_batch);
  numerics["elastic_determinism"] = engine.elastic_determinism ? "on" : "off";
  if (engine.elastic_determinism) {  // only their product counts
    numerics["micro_batches"] = std::to_string(engine.micro_steps * comm_.size());
  } else {
    numerics["world"] = std::to_string(comm_.size());
    numerics["micro_steps"] = std::to_string(engine.micro_steps);
  }
  numerics["accumulation"] = dist::name_of(engine.accumulation);
  numerics["precision"] = identity_.precision;
  numerics["gradient_division"] = engine.prescale_gradients ? "at the loss"
                                  : engine.predivide == 1
                                      ? "after the sum"
                                      : fmt::format("by {} at the loss", engine.predivide);
  if (engine.precision == DType::f16)
    numerics["loss_scale"] = loss_scale_text(engine.loss_scale);
  numerics["communication"] = precision_name(engine.communication.value_or(engine.precision));
  numerics["reduction"] = dist::name_of(engine.reduction);
  numerics["optimizer"] = optimizer_text(engine.optimizer);
  numerics["schedule"] = schedule_text(options_.schedule);
  if (optim::depends_on_length(options_.schedule.kind))
    numerics["steps"] = std::to_string(options_.schedule.steps);
  numerics["clip"] = fmt::format("{}", engine.clip);
  numerics["isa"] = kernel_table(comm_.device()).name;
  numerics["library"] = products_library(engine.precision);
}

// What ranks must have in common: what decides bits, and what decides which calls they make.
std::map<std::string, std::string> Trainer::agreement() const {
  auto fields = identity_.numerics;
  fields.merge(dist::fields_of(options_.engine));
  fields["version"] = version;
  fields["steps"] = std::to_string(options_.steps);
  fields["save_every"] = std::to_string(options_.save_every);
  fields["async_save"] = options_.async_save ? "on" : "off";
  fields["eval_every"] = std::to_string(options_.eval_every);
  fields["eval_batches"] = std::to_string(options_.eval_batches);
  fields["out"] = options_.out;
  fields["resume"] = options_.resume ? "on" : "off";
  fields["accept_change"] = options_.accept_change;
  fields["receipt"] = options_.receipt.empty() ? "none" : "written";  // its parts are gathered
  return fields;
}

// Before the engine is made: what the run began with that the command line leaves open, and refusal
// of what differs.
void Trainer::adopt(const dist::CheckpointReader& checkpoint, bool batch_given) {
  const Numerics saved = numerics_of(checkpoint);
  if (!options_.warmup) {  // its default follows from a length that may differ
    options_.schedule.warmup = warmup_of(saved).value_or(options_.schedule.warmup);
    options_.schedule.validate();
    identify();
  }
  if (!batch_given && accepts_change(options_.accept_change, "world")) {
    options_.global_batch = global_batch_of(saved, checkpoint.path());
    settle_batch();
    identify();
  }
  const auto order = saved.find("accumulation");
  if (options_.engine.accumulation == dist::Accumulation::automatic && order != saved.end()) {
    options_.engine.accumulation = dist::parse_accumulation(order->second);
    identity_.numerics["accumulation"] = order->second;
  }
  accepted_ = check_numerics(saved, identity_.numerics, options_.accept_change, checkpoint.path());
}

void Trainer::restore(const dist::CheckpointReader& checkpoint) {
  const SavedRun saved = SavedRun::parse(checkpoint.state(), checkpoint.path());
  engine_->load(checkpoint);
  record_ = saved.record;
  check(ErrorKind::bad_input,
        steps_done() <= options_.steps,
        "resume: {} has done {} steps, --steps asks for {}",
        checkpoint.path(),
        steps_done(),
        options_.steps);
}

dist::Checkpoint Trainer::checkpoint() {
  const SavedRun run{.family = family_.name,
                     .size = options_.size,
                     .tokenizer = data_.tokenizer().to_json(),
                     .seed = options_.seed,
                     .steps = options_.steps,
                     .record = record_};
  dist::Checkpoint checkpoint = dist::checkpoint_of(*engine_);
  checkpoint.numerics = Json(identity_.numerics).dump();
  checkpoint.state = run.text();
  checkpoint.run = run_;
  return checkpoint;
}

void Trainer::save() {
  if (options_.out.empty())
    return;
  finish_save();  // one at a time
  const Clock::time_point begin = Clock::now();
  save_ = {.step = steps_done()};
  if (saver_)
    saver_->start(options_.out, checkpoint());
  else
    dist::save_checkpoint(options_.out, checkpoint(), dist::ranks_of(comm_));
  save_.stall_seconds = seconds_since(begin);
  saved_at_ = Clock::now();
  if (!saver_)
    progress_->saved(save_);
}

void Trainer::poll_save() {
  if (!saver_ || !saver_->under_way())
    return;
  const Clock::time_point begin = Clock::now();
  const bool over = saver_->poll();
  save_.stall_seconds += seconds_since(begin);
  if (over)
    progress_->saved(save_);
}

void Trainer::finish_save() {
  if (!saver_ || !saver_->under_way())
    return;
  const Clock::time_point begin = Clock::now();
  saver_->wait();
  save_.stall_seconds += seconds_since(begin);
  progress_->saved(save_);
}

void Trainer::finish_save_quietly() {
  try {
    finish_save();
  } catch (const Error& e) {
    progress_->note(e.what());
  }
}

}  // namespace sg::models

#include "dist/config/settings.h"

#include <fmt/format.h>

namespace sg::dist {
namespace {

using Texts = std::map<std::string, std::string>;

// The communication that follows from the precision counts as said.
Options spelled_out(Options options) {
  options.communication = options.communication.value_or(options.precision);
  return options;
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

std::string division_text(const Options& options) {
  if (options.prescale_gradients)
    return "at the loss";
  if (options.predivide == 1)
    return "after the sum";
  return fmt::format("by {} at the loss", options.predivide);
}

}  // namespace

Texts fields_of(const Options& given) {
  const Options options = spelled_out(given);
  Texts fields;
  visit_engine(options, [&](auto rows, const auto& owner) {
    for (const auto& row : rows) {
      if (row.decides != Decides::nothing)
        fields[row.name] = text_of(row, owner);
    }
  });
  if (options.precision != DType::f16) {
    for (const auto& row : loss_scale_settings)
      fields.erase(row.name);
  }
  return fields;
}

Texts numerics_of(const Options& given, int ranks) {
  const Options options = spelled_out(given);
  Texts numerics;
  visit_engine(options, [&](auto rows, const auto& owner) {
    for (const auto& row : rows) {
      if (row.decides == Decides::bits && !row.shown_in)
        numerics[row.name] = text_of(row, owner);
    }
  });
  if (options.elastic_determinism) {  // only their product counts
    numerics["micro_batches"] = std::to_string(options.micro_steps * ranks);
  } else {
    numerics["world"] = std::to_string(ranks);
    numerics["micro_steps"] = std::to_string(options.micro_steps);
  }
  numerics["frozen"] = options.freeze.empty() ? "none" : options.freeze;
  numerics["gradient_division"] = division_text(options);
  numerics["optimizer"] = optimizer_text(options.optimizer);
  if (options.precision == DType::f16)
    numerics["loss_scale"] = loss_scale_text(options.loss_scale);
  return numerics;
}

Texts numerics_of(const optim::Schedule& schedule) {
  Texts numerics = {{"schedule", schedule_text(schedule)}};
  if (optim::depends_on_length(schedule.kind))
    numerics["steps"] = std::to_string(schedule.steps);
  return numerics;
}

}  // namespace sg::dist

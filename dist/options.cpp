#include "dist/options.h"

#include <fmt/format.h>

#include <span>

#include "core/error.h"

namespace sg::dist {
namespace {

constexpr const char* engines[] = {"none", "dp", "ddp", "zero1", "zero2", "zero3", "auto"};
constexpr const char* orders[] = {"auto", "local_first", "ranks_first"};
constexpr const char* partitions[] = {"bucket", "contiguous"};
constexpr const char* nonfinite[] = {"stop", "skip"};

template <class Enum>
Enum parse(const char* option, std::span<const char* const> names, const std::string& text) {
  std::string known;
  for (size_t i = 0; i < names.size(); ++i) {
    if (text == names[i])
      return static_cast<Enum>(i);
    known += (i ? ", " : "") + std::string(names[i]);
  }
  fail(ErrorKind::usage, "{}: \"{}\" is none of {}", option, text, known);
}

}  // namespace

const char* name_of(EngineKind kind) {
  return engines[static_cast<int>(kind)];
}
const char* name_of(Accumulation order) {
  return orders[static_cast<int>(order)];
}
const char* name_of(PartitionKind kind) {
  return partitions[static_cast<int>(kind)];
}
const char* name_of(OnNonFinite what) {
  return nonfinite[static_cast<int>(what)];
}
EngineKind parse_engine(const std::string& text) {
  return parse<EngineKind>("engine", engines, text);
}
Accumulation parse_accumulation(const std::string& text) {
  return parse<Accumulation>("accumulation", orders, text);
}
PartitionKind parse_partition(const std::string& text) {
  return parse<PartitionKind>("partition", partitions, text);
}
OnNonFinite parse_on_nonfinite(const std::string& text) {
  return parse<OnNonFinite>("on-nonfinite", nonfinite, text);
}

std::map<std::string, std::string> fields_of(const Options& o) {
  const auto text = [](const auto& value) { return fmt::format("{}", value); };
  std::map<std::string, std::string> fields = {
      {"engine", name_of(o.engine)},
      {"lr", text(o.lr)},
      {"micro_steps", text(o.micro_steps)},
      {"accumulation", name_of(o.accumulation)},
      {"clip", text(o.clip)},
      {"optimizer", o.optimizer.type},
      {"beta1", text(o.optimizer.beta1)},
      {"beta2", text(o.optimizer.beta2)},
      {"eps", text(o.optimizer.eps)},
      {"weight_decay", text(o.optimizer.weight_decay)},
      {"momentum", text(o.optimizer.momentum)},
      {"nesterov", text(o.optimizer.nesterov)},
      {"reduction", name_of(o.reduction)},
      {"precision", name_of(o.precision)},
      {"communication", name_of(o.communication.value_or(o.precision))},
      {"on_nonfinite", name_of(o.on_nonfinite)},
      {"prescale_gradients", text(o.prescale_gradients)},
      {"predivide", text(o.predivide)},
      {"elastic_determinism", text(o.elastic_determinism)},
      {"overlap", text(o.overlap)},
      {"partition", name_of(o.partition)},
      {"first_bucket_bytes", text(o.first_bucket_bytes)},
      {"bucket_bytes", text(o.bucket_bytes)},
      {"zero1_reduce", o.zero1_all_reduce ? "all_reduce" : "reduce_scatter"},
      {"prefetch", text(o.prefetch_elements)},
      {"max_live", text(o.max_live_elements)},
      {"persistent", text(o.persistent_elements)},
      {"recompute", to_string(o.recompute)},
      {"cpu_checkpointing", text(o.cpu_checkpointing)},
  };
  const optim::LossScaleOptions& scale = o.loss_scale;
  if (o.precision == DType::f16) {
    fields["loss_scale"] = fmt::format("fixed {} power {} window {} hysteresis {}{} minimum {}",
                                       scale.fixed,
                                       scale.initial_power,
                                       scale.window,
                                       scale.hysteresis,
                                       scale.consecutive_hysteresis ? " consecutive" : "",
                                       scale.minimum);
  }
  return fields;
}

}  // namespace sg::dist

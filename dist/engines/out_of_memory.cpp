#include "dist/engines/out_of_memory.h"

#include <bit>

#include "dist/comm/comm.h"

namespace sg::dist {
namespace {

struct Rung {
  EngineKind engine;
  const char* frees;
  uint64_t element_bytes;  // of what becomes sharded
};

// f32 sums of micro-steps that an owner keeps for each of its elements.
uint64_t sum_bytes(const Options& o) {
  if (o.elastic_determinism)
    return 4 * static_cast<uint64_t>(std::bit_width(static_cast<unsigned>(o.micro_steps)));
  return o.accumulation == Accumulation::ranks_first && o.micro_steps > 1 ? 4 : 0;
}

Rung next_rung(const Options& o) {
  const uint64_t element = size_of(o.precision);
  const uint64_t states = 4 * optim::make_optimizer(o.optimizer)->state_names().size();
  const uint64_t optimizer = states + (is_16bit(o.precision) ? 4 : 0) + sum_bytes(o);
  switch (o.engine) {
    case EngineKind::zero1: return {EngineKind::zero2, "gradients", element};
    case EngineKind::zero2: return {EngineKind::zero3, "parameters", element};
    case EngineKind::zero3: return {EngineKind::zero3, "", 0};
    default: return {EngineKind::zero1, "optimizer state", optimizer};
  }
}

std::string advice(const Options& options, int ranks, int64_t elements) {
  const Rung rung = next_rung(options);
  if (ranks == 1)
    return "one rank has nothing to shard: more ranks with --engine zero1, or a smaller "
           "--micro-batch";
  if (rung.engine == options.engine)
    return "no rung is left: more ranks, a smaller --micro-batch, or a device with more memory";
  const auto of_others = static_cast<uint64_t>(elements - elements / ranks);
  return fmt::format("next rung: --engine {} would free {} of {}",
                     name_of(rung.engine),
                     format_bytes(of_others * rung.element_bytes),
                     rung.frees);
}

}  // namespace

Error explained(const OutOfMemory& error,
                const Options& options,
                const Comm& comm,
                int64_t elements) {
  return Error(ErrorKind::out_of_memory,
               fmt::format("{}: rank {} is out of device memory: {}\n  {}",
                           name_of(options.engine),
                           comm.rank(),
                           error.figures(),
                           advice(options, comm.size(), elements)));
}

}  // namespace sg::dist

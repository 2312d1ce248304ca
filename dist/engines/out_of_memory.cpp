#include "dist/engines/out_of_memory.h"

#include "core/copies.h"
#include "dist/comm/comm.h"
#include "dist/engines/facts.h"
#include "dist/engines/micro_step_sum.h"

namespace sg::dist {
namespace {

// f32 sums of micro-steps that an owner keeps for each of its elements.
uint64_t sum_bytes(const Options& options) {
  if (options.elastic_determinism)
    return 4 * MicroStepSum::tree_levels(options.micro_steps);
  const bool adds_at_owner = options.accumulation == Accumulation::ranks_first;
  return adds_at_owner && options.micro_steps > 1 ? 4 : 0;
}

// Of an element, for what the next rung shards besides.
uint64_t bytes_of(ModelState state, const Options& options) {
  if (state != ModelState::optimizer)
    return size_of(options.precision);
  const uint64_t states = optim::make_optimizer(options.optimizer)->state_names().size();
  const uint64_t master = is_16bit(options.precision) ? 4 : 0;
  return 4 * states + master + sum_bytes(options);
}

std::string advice(const Options& options, int ranks, int64_t elements) {
  const EngineKind next = facts_of(options.engine).next;
  if (ranks == 1)
    return "one rank has nothing to shard: more ranks with --engine zero1, or a smaller "
           "--micro-batch";
  if (next == options.engine)
    return "no rung is left: more ranks, a smaller --micro-batch, or a device with more memory";
  const ModelState sharded = facts_of(next).shards;
  const auto of_others = static_cast<uint64_t>(elements - elements / ranks);
  return fmt::format("next rung: --engine {} would free {} of {}",
                     name_of(next),
                     format_bytes(of_others * bytes_of(sharded, options)),
                     name_of(sharded));
}

}  // namespace

Error explain(const OutOfMemory& error,
              const Options& options,
              const Comm& comm,
              int64_t elements) {
  if (error.device() == host_of(comm.device()))
    return Error(
        ErrorKind::out_of_memory,
        fmt::format("{}: rank {} is out of host memory: {}\n  less on the host: more ranks "
                    "of zero, or without --offload-optimizer, --cpu-checkpointing",
                    name_of(options.engine),
                    comm.rank(),
                    error.figures()));
  return Error(ErrorKind::out_of_memory,
               fmt::format("{}: rank {} is out of device memory: {}\n  {}",
                           name_of(options.engine),
                           comm.rank(),
                           error.figures(),
                           advice(options, comm.size(), elements)));
}

}  // namespace sg::dist

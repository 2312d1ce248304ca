#include <bit>

#include "autograd/host_activations.h"
#include "core/error.h"
#include "dist/comm/connect.h"
#include "dist/config/settings.h"
#include "dist/engines/engines.h"
#include "dist/engines/facts.h"
#include "dist/engines/freeze.h"
#include "dist/engines/take_over.h"

namespace sg::dist {
namespace {

// What elastic determinism needs of the rest; it says so where that was asked for differently.
void check_elastic(const Options& options, const Comm& comm) {
  const auto must = [](bool ok, const std::string& what) {
    check(ok, "elastic determinism: {}", what);
  };
  must(std::has_single_bit(static_cast<unsigned>(comm.size())),
       fmt::format("the number of ranks must be a power of two, not {}", comm.size()));
  must(options.reduction == Algorithm::ordered,
       fmt::format("sums must be ordered, not {}", name_of(options.reduction)));
  must(!options.prescale_gradients && options.predivide == 1,
       "the loss is divided by all micro-batches already: no prescaled gradients, no predivide "
       "factor");
  must(options.communication == options.precision,
       fmt::format("contributions cross in the precision, {}, not in {}",
                   name_of(options.precision),
                   name_of(*options.communication)));
  must(options.accumulation != Accumulation::local_first,
       "accumulation must be ranks_first, not local_first");
  must(options.engine != EngineKind::zero1 || !options.zero1_all_reduce,
       "zero1 must reduce by reduce_scatter, not all_reduce, which has no room for f32 sums");
}

// The ranges that a command line checks by itself.
void check_values(const Options& options) {
  Options read = options;
  for (const Setting<Options>& row : engine_settings)
    check_range("engine", row.name, row.field(read), row.range);
}

// Before any memory is taken: an engine lays its parameters out one behind the other.
void check_parameters(const std::vector<Unit>& units) {
  for (const Unit& unit : units) {
    for (size_t i = 0; i < unit.parameters.size(); ++i) {
      const Variable& p = unit.parameters[i];
      check(p.defined(), "initialize: parameter {} of unit '{}' is undefined", i, unit.name);
      check(p.is_leaf(),
            "initialize: '{}' of unit '{}' is the result of an op, not a parameter",
            p.name(),
            unit.name);
      check(is_float(p.dtype()),
            "initialize: '{}' of unit '{}' is {}: parameters are floats",
            p.name(),
            unit.name,
            name_of(p.dtype()));
    }
  }
}

Options resolved(Options options, const Comm& comm) {
  check(options.engine != EngineKind::automatic,
        "engine auto: a dry run of the model chooses; give initialize a closure that makes one "
        "(dist/plan.h)");
  check(options.engine != EngineKind::none || comm.size() == 1,
        "engine none: one rank, not {}",
        comm.size());
  check(options.engine != EngineKind::dp || !under_launcher(),
        "engine dp: one process with a replica per thread; use ddp under mpirun");
  check_values(options);
  check(options.precision == DType::f32 || is_16bit(options.precision),
        "engine: precision {} is none of f32, bf16, f16",
        name_of(options.precision));
  check(!options.prescale_gradients || options.predivide == 1,
        "engine: prescaled gradients are divided by all ranks at the loss; a predivide factor of "
        "{} has no place there",
        options.predivide);
  const DType crossing = options.communication.value_or(options.precision);
  check(crossing == DType::f32 || is_16bit(crossing),
        "engine: communication in {} is none of f32, bf16, f16",
        name_of(crossing));
  options.communication = crossing;
  check(options.offload_optimizer == OffloadDevice::none || has_any(zero_engines, options.engine),
        "engine {}: doesn't offload the optimizer, only {} do",
        name_of(options.engine),
        names_of(zero_engines));
  if (options.elastic_determinism) {
    check_elastic(options, comm);
    options.accumulation = Accumulation::ranks_first;
  }
  if (options.accumulation == Accumulation::automatic)
    options.accumulation = facts_of(options.engine).order;
  return options;
}

std::unique_ptr<BucketEngine> make(std::vector<Unit> units, const Options& options, Comm& comm) {
  switch (options.engine) {
    case EngineKind::none:
    case EngineKind::ddp: return make_ddp(std::move(units), options, comm);
    case EngineKind::dp: return make_dp(std::move(units), options, comm);
    case EngineKind::zero1: return make_zero1(std::move(units), options, comm);
    case EngineKind::zero2: return make_zero2(std::move(units), options, comm);
    case EngineKind::zero3: return make_zero3(std::move(units), options, comm);
    case EngineKind::automatic: break;
  }
  throw Bug("engine: unknown kind");
}

int64_t trained_elements(const std::vector<Unit>& units) {
  const UnitMap map(units);
  int64_t elements = 0;
  for (const UnitMap::Entry& entry : map.entries())
    elements += entry.parameter.requires_grad() ? entry.parameter.numel() : 0;
  return elements;
}

}  // namespace

std::unique_ptr<Engine> initialize(std::vector<Unit> units, const Options& options, Comm& comm) {
  check_parameters(units);
  const Options complete = resolved(options, comm);
  check_recompute(units, complete.recompute, complete.cpu_checkpointing);
  check_patterns(units, complete.freeze);
  if (comm.size() > 1)
    comm.agree({"initialize", Phase::setup}, fields_of(complete));
  take_from_other_engines(units);
  freeze(units, complete.freeze);
  const int64_t elements = trained_elements(units);
  std::unique_ptr<BucketEngine> engine;
  try {
    engine = make(units, complete, comm);
    engine->start();
  } catch (const OutOfMemory& e) {
    throw explain(e, complete, comm, elements);
  }
  std::shared_ptr<HostActivations> store;
  if (complete.cpu_checkpointing)
    store = std::make_shared<HostActivations>(comm.device());
  set_recompute(units, complete.recompute, store);
  // While parameters moved into the engine's memory both copies existed: that peak has a place of
  // its own.
  pool(comm.device()).end_setup();
  return engine;
}

}  // namespace sg::dist

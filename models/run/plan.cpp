#include "models/run/plan.h"

#include <algorithm>

#include "core/device.h"
#include "core/ops.h"
#include "dist/comm/sim.h"
#include "dist/engine.h"
#include "models/run/load.h"
#include "models/run/peak.h"
#include "nn/micro_step.h"

namespace sg::models {
namespace {

dist::TrafficTable difference(const dist::TrafficTable& after, const dist::TrafficTable& before) {
  dist::TrafficTable table = after;
  for (size_t operation = 0; operation < table.size(); ++operation) {
    for (size_t phase = 0; phase < table[operation].size(); ++phase) {
      dist::Traffic& t = table[operation][phase];
      const dist::Traffic& b = before[operation][phase];
      t.calls -= b.calls, t.sent -= b.sent, t.received -= b.received, t.padding -= b.padding;
    }
  }
  return table;
}

dist::Traffic step_traffic(const dist::TrafficTable& table, dist::Operation operation) {
  return table[static_cast<size_t>(operation)][static_cast<size_t>(dist::Phase::step)];
}

// How long the products take, how long the update, and how long each kind of transfer; what overlaps hides.
void estimate(EnginePlan& plan, const PlanOptions& options, const std::vector<Product>& computed, const Hardware& on) {
  double flops = 0;
  for (const Product& p : computed) flops += p.flops();
  const double k = options.engine.micro_steps;
  const double products = k * flops / on.flops;
  // The update reads and writes its state once, and reads the gradient.
  const double update = 2.0 * static_cast<double>(plan.memory.peak(Category::optimizer)) / on.memory_bandwidth;
  const auto seconds = [&](std::initializer_list<dist::Operation> operations) {
    double total = 0;
    for (dist::Operation operation : operations) {
      const dist::Traffic t = step_traffic(plan.traffic, operation);
      total += static_cast<double>(std::max(t.sent, t.received)) / on.link_bandwidth +
               static_cast<double>(t.calls) * on.link_latency;
    }
    return total;
  };
  using dist::Operation;
  const double gradients = seconds({Operation::all_reduce, Operation::reduce_scatter});
  const double parameters = seconds({Operation::all_gather, Operation::broadcast});
  plan.compute_seconds = products + update;
  plan.communication_seconds = gradients + parameters;
  // Gradients travel beside backward, two thirds of the products. Parameters: ZeRO-1's and 2's beside the next forward,
  // ZeRO-3's beside all products; replica 0's beside nothing.
  const double beside = plan.engine == dist::EngineKind::zero3 ? products
                        : plan.engine == dist::EngineKind::dp  ? 0
                                                               : products / 3;
  const bool overlap = options.engine.overlap;
  if (!overlap) plan.exposed_seconds = plan.communication_seconds;
  else if (plan.engine == dist::EngineKind::zero3)
    plan.exposed_seconds = std::max(0.0, gradients + parameters - products);
  else plan.exposed_seconds = std::max(0.0, gradients - products * 2 / 3) + std::max(0.0, parameters - beside);
}

// What a micro-step's data takes, as Feed holds it.
struct DryBatch {
  DryBatch(const PlanOptions& options, const dist::Comm& comm) {
    const CategoryScope category(Category::data);
    const Shape shape{options.micro_batch, *options.size.context};
    const bool scatters = options.engine.engine == dist::EngineKind::dp && comm.size() > 1 && comm.rank() == 0;
    const Shape whole{scatters ? options.micro_batch * comm.size() : 0, *options.size.context};
    const Tensor all_tokens = empty(whole, DType::i32), all_targets = empty(whole, DType::i32);
    tokens = empty(shape, DType::i32), targets = empty(shape, DType::i32);
  }
  Tensor tokens, targets;
};

void dry_step(LanguageModel& model, dist::Engine& engine, const PlanOptions& options, uint64_t step) {
  for (int j = 0; j < options.engine.micro_steps; ++j) {
    const nn::MicroStepScope scope(1, step, 0);
    const DryBatch batch(options, engine.comm());
    engine.backward(engine.forward([&] { return model.loss(batch.tokens, batch.targets); }));
    engine.step();
  }
}

}  // namespace

uint64_t EnginePlan::model_states() const {
  uint64_t bytes = 0;
  for (Category c : {Category::parameters, Category::gradients, Category::optimizer, Category::accumulation})
    bytes += memory.peak(c);
  return bytes;
}

EnginePlan plan_rank(const Family& family, const PlanOptions& given, dist::EngineKind engine, int rank,
                     const Hardware& on) {
  PlanOptions options = given;
  options.engine.engine = engine;
  const Device device = options.dry_device;
  const DeviceGuard guard(device);
  const int threads = options.threads > 0 ? options.threads : std::max(1, available_processors() / options.world);
  configure(device, {.threads = threads});
  pool(device).reset_peaks();
  auto comm = dist::connect_sim(rank, options.world, device, options.imitated);
  const std::unique_ptr<LanguageModel> model = build_on_meta(family, options.size, 1);
  auto dry = dist::initialize(model->units(), options.engine, *comm);
  EnginePlan plan;
  plan.engine = engine;
  plan.rank = rank;
  dry_step(*model, *dry, options, 0);
  dry->synchronize();
  const dist::TrafficTable before = comm->traffic().table();
  dry_step(*model, *dry, options, 1);
  dry->synchronize();
  plan.memory = pool(device).ledger();
  plan.traffic = difference(comm->traffic().table(), before);
  if (on.flops > 0) estimate(plan, options, training_products(family, options.size, options.micro_batch), on);
  return plan;
}

EnginePlan plan_engine(const Family& family, const PlanOptions& options, dist::EngineKind engine, const Hardware& on) {
  EnginePlan first = plan_rank(family, options, engine, 0, on);
  if (options.world == 1 || engine == dist::EngineKind::ddp || engine == dist::EngineKind::dp) return first;
  EnginePlan last = plan_rank(family, options, engine, options.world - 1, on);
  return last.memory.needed() > first.memory.needed() ? last : first;
}

}  // namespace sg::models

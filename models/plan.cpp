#include "models/plan.h"

#include <algorithm>

#include "core/ops.h"
#include "dist/comm_sim.h"
#include "dist/engine.h"
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
void estimate(EnginePlan& plan, const PlanOptions& options, const LanguageModel& model, const Hardware& on) {
  double flops = 0;
  for (const Product& p : model.products(options.micro_batch, *options.size.context)) flops += p.flops();
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

// Rank `rank` of the group lives through two steps.
EnginePlan live(const Family& family, const PlanOptions& options, int rank, const Hardware& on) {
  const Device device = meta(0);
  const DeviceGuard guard(device);
  configure(device, {.capacity = options.device_memory});
  auto comm = dist::connect_sim(rank, options.world, device);
  const std::unique_ptr<LanguageModel> model = family.build(options.size, 1);
  auto engine = dist::initialize(model->units(), options.engine, *comm);
  const Shape shape{options.micro_batch, *options.size.context};
  EnginePlan plan;
  plan.engine = options.engine.engine;
  dist::TrafficTable before{};
  for (int step = 0; step < 2; ++step) {
    before = comm->traffic().table();
    for (int j = 0; j < options.engine.micro_steps; ++j) {
      nn::MicroStepScope scope(1, static_cast<uint64_t>(step), 0);
      CategoryScope category(Category::data);
      const Tensor tokens = empty(shape, DType::i32), targets = empty(shape, DType::i32);
      CategoryScope activations(Category::activations);
      engine->backward(engine->forward([&] { return model->loss(tokens, targets); }));
      engine->step();
    }
  }
  engine->synchronize();
  plan.memory = pool(device).ledger();
  plan.traffic = difference(comm->traffic().table(), before);
  estimate(plan, options, *model, on);
  return plan;
}

}  // namespace

uint64_t EnginePlan::model_states() const {
  uint64_t bytes = 0;
  for (Category c : {Category::parameters, Category::gradients, Category::optimizer, Category::accumulation})
    bytes += memory.peak(c);
  return bytes;
}

EnginePlan plan_engine(const Family& family, const PlanOptions& given, dist::EngineKind engine, const Hardware& on) {
  PlanOptions options = given;
  options.engine.engine = engine;
  EnginePlan first = live(family, options, 0, on);
  if (options.world == 1 || engine == dist::EngineKind::ddp || engine == dist::EngineKind::dp) return first;
  EnginePlan last = live(family, options, options.world - 1, on);
  return last.memory.total_peak() > first.memory.total_peak() ? last : first;
}

}  // namespace sg::models

#include "models/run/plan.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "core/device.h"
#include "core/ops.h"
#include "dist/comm/sim.h"
#include "dist/engine.h"
#include "dist/engines/facts.h"
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

// How long the products take, how long the update, and how long each kind of transfer; what
// overlaps hides.
void estimate(EnginePlan& plan,
              const PlanOptions& options,
              const std::vector<Product>& computed,
              const Hardware& on) {
  double flops = 0;
  for (const Product& p : computed)
    flops += p.flops();
  const double k = options.engine.micro_steps;
  const double products = k * flops / on.flops;
  // The update reads and writes its state once, and reads the gradient.
  const double update =
      2.0 * static_cast<double>(plan.memory.peak(Category::optimizer)) / on.memory_bandwidth;
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
  // Gradients travel beside backward, two thirds of the products; parameters beside the next
  // forward, or beside all of it, which the gradients then share with them.
  plan.exposed_seconds = plan.communication_seconds;
  if (!options.engine.overlap)
    return;
  const auto exposed = [](double communication, double beside) {
    return std::max(0.0, communication - beside);
  };
  switch (dist::facts_of(plan.engine).parameters_run) {
    case dist::Beside::every_product:
      plan.exposed_seconds = exposed(gradients + parameters, products);
      return;
    case dist::Beside::next_forward:
      plan.exposed_seconds =
          exposed(gradients, products * 2 / 3) + exposed(parameters, products / 3);
      return;
    case dist::Beside::nothing:
      plan.exposed_seconds = exposed(gradients, products * 2 / 3) + parameters;
      return;
  }
}

// What a micro-step's data takes, as Feed holds it.
struct DryBatch {
  DryBatch(const PlanOptions& options, const dist::Comm& comm) {
    const CategoryScope category(Category::data);
    const Shape shape{options.batch.micro, *options.size.context};
    const bool one_reader = dist::facts_of(options.engine.engine).one_reader;
    const bool scatters = one_reader && comm.size() > 1 && comm.rank() == 0;
    const Shape whole{scatters ? options.batch.micro * comm.size() : 0, *options.size.context};
    const Tensor all_tokens = empty(whole, DType::i32), all_targets = empty(whole, DType::i32);
    tokens = empty(shape, DType::i32), targets = empty(shape, DType::i32);
  }
  Tensor tokens, targets;
};

void dry_step(LanguageModel& model,
              dist::Engine& engine,
              const PlanOptions& options,
              uint64_t step) {
  for (int j = 0; j < options.engine.micro_steps; ++j) {
    const nn::MicroStepScope scope(1, step, 0);
    const DryBatch batch(options, engine.comm());
    engine.backward(engine.forward([&] { return model.loss(batch.tokens, batch.targets); }));
    engine.step();
  }
}

MemoryPeaks peaks_of(const Ledger& ledger) {
  MemoryPeaks peaks{.total = ledger.total_peak(), .setup = ledger.setup_peak()};
  for (int c = 0; c < category_count; ++c)
    peaks.by_category[static_cast<size_t>(c)] = ledger.peak(static_cast<Category>(c));
  for (Category c :
       {Category::parameters, Category::gradients, Category::optimizer, Category::accumulation})
    peaks.model_states += ledger.peak(c);
  return peaks;
}

void raise_to(MemoryPeaks& most, const MemoryPeaks& peaks) {
  for (size_t c = 0; c < most.by_category.size(); ++c)
    most.by_category[c] = std::max(most.by_category[c], peaks.by_category[c]);
  most.model_states = std::max(most.model_states, peaks.model_states);
  most.total = std::max(most.total, peaks.total);
  most.setup = std::max(most.setup, peaks.setup);
}

EnginePlan run_dry(const Family& family,
                   const PlanOptions& given,
                   dist::EngineKind engine,
                   int rank,
                   const Hardware& on,
                   const dist::SeesShards& sees) {
  PlanOptions options = given;
  options.engine.engine = engine;
  const Device device = options.dry_device;
  const DeviceGuard guard(device);
  const int threads =
      options.threads > 0 ? options.threads : std::max(1, available_processors() / options.world);
  configure(device, {.threads = threads});
  pool(device).reset_peaks();
  auto comm = dist::connect_sim(rank, options.world, device, options.imitated, sees);
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
  plan.most = peaks_of(plan.memory);
  plan.traffic = difference(comm->traffic().table(), before);
  if (on.flops > 0)
    estimate(plan, options, training_products(family, options.size, options.batch.micro), on);
  return plan;
}

// What every rank owns of each sum in the order of the engine's calls, found by running one of
// them.
std::vector<std::vector<int64_t>> owned_by_rank(const Family& family,
                                                const PlanOptions& given,
                                                dist::EngineKind engine) {
  PlanOptions options = given;
  options.engine.reduction =
      dist::Algorithm::ordered;  // the partition is the same, and the group sees it
  std::vector<std::vector<int64_t>> owned(static_cast<size_t>(options.world));
  run_dry(family, options, engine, 0, {}, [&](const dist::Shards& shards) {
    for (int rank = 0; rank < shards.ranks(); ++rank)
      owned[static_cast<size_t>(rank)].push_back(shards.count(rank));
  });
  return owned;
}

// The ranks above 0 whose books may hold the most (plan_engine).
std::vector<int> ranks_to_plan(const std::vector<std::vector<int64_t>>& owned) {
  const size_t most_ranks = owned.size() <= 64 ? 64 : 8;
  using Candidate = std::pair<int64_t, int>;  // what it owns, its rank
  std::vector<Candidate> candidates;
  for (size_t rank = 1; rank < owned.size(); ++rank)
    candidates.emplace_back(std::accumulate(owned[rank].begin(), owned[rank].end(), int64_t{0}),
                            static_cast<int>(rank));
  std::stable_sort(candidates.begin(),
                   candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.first > b.first; });
  std::vector<int> chosen;
  for (const auto& [sum, rank] : candidates) {
    const auto& mine = owned[static_cast<size_t>(rank)];
    const bool covered = std::any_of(chosen.begin(), chosen.end(), [&](int other) {
      const auto& more = owned[static_cast<size_t>(other)];
      return std::equal(mine.begin(), mine.end(), more.begin(), more.end(), std::less_equal<>());
    });
    if (!covered)
      chosen.push_back(rank);
    if (chosen.size() == most_ranks)
      break;
  }
  return chosen;
}

}  // namespace

EnginePlan plan_rank(const Family& family,
                     const PlanOptions& options,
                     dist::EngineKind engine,
                     int rank,
                     const Hardware& on) {
  return run_dry(family, options, engine, rank, on, {});
}

EnginePlan plan_engine(const Family& family,
                       const PlanOptions& options,
                       dist::EngineKind engine,
                       const Hardware& on) {
  EnginePlan most = plan_rank(family, options, engine, 0, on);
  if (options.world == 1)
    return most;
  MemoryPeaks peaks = most.most;
  for (const int rank : ranks_to_plan(owned_by_rank(family, options, engine))) {
    EnginePlan plan = plan_rank(family, options, engine, rank, on);
    raise_to(peaks, plan.most);
    if (plan.memory.needed() > most.memory.needed())
      most = std::move(plan);
  }
  most.most = peaks;
  return most;
}

}  // namespace sg::models

#include "dist/plan.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "core/copies.h"
#include "core/device.h"
#include "core/products.h"
#include "dist/comm/connect.h"
#include "dist/engines/facts.h"

namespace sg::dist {
namespace {

TrafficTable difference(const TrafficTable& after, const TrafficTable& before) {
  TrafficTable table = after;
  for (size_t operation = 0; operation < table.size(); ++operation) {
    for (size_t phase = 0; phase < table[operation].size(); ++phase) {
      Traffic& t = table[operation][phase];
      const Traffic& b = before[operation][phase];
      t.calls -= b.calls, t.sent -= b.sent, t.received -= b.received, t.padding -= b.padding;
    }
  }
  return table;
}

Traffic step_traffic(const TrafficTable& table, Operation operation) {
  return table[static_cast<size_t>(operation)][static_cast<size_t>(Phase::step)];
}

// How long the products take, how long the update, and how long each kind of transfer; what
// overlaps hides.
void estimate(EnginePlan& plan, const Options& options, const Hardware& on) {
  const double products = plan.flops / on.flops;
  // The update reads and writes its state once, and reads the gradient.
  const double update =
      2.0 * static_cast<double>(plan.memory.peak(Category::optimizer)) / on.memory_bandwidth;
  const auto seconds = [&](std::initializer_list<Operation> operations) {
    double total = 0;
    for (Operation operation : operations) {
      const Traffic t = step_traffic(plan.traffic, operation);
      total += static_cast<double>(std::max(t.sent, t.received)) / on.link_bandwidth +
               static_cast<double>(t.calls) * on.link_latency;
    }
    return total;
  };
  const double gradients = seconds({Operation::all_reduce, Operation::reduce_scatter});
  const double parameters = seconds({Operation::all_gather, Operation::broadcast});
  plan.compute_seconds = products + update;
  plan.communication_seconds = gradients + parameters;
  // Gradients travel beside backward, two thirds of the products; parameters beside the next
  // forward, or beside all of it, which the gradients then share with them.
  plan.exposed_seconds = plan.communication_seconds;
  if (!options.overlap)
    return;
  const auto exposed = [](double communication, double beside) {
    return std::max(0.0, communication - beside);
  };
  switch (facts_of(plan.engine).parameters_run) {
    case Beside::every_product:
      plan.exposed_seconds = exposed(gradients + parameters, products);
      return;
    case Beside::next_forward:
      plan.exposed_seconds =
          exposed(gradients, products * 2 / 3) + exposed(parameters, products / 3);
      return;
    case Beside::nothing:
      plan.exposed_seconds = exposed(gradients, products * 2 / 3) + parameters;
      return;
  }
}

MemoryPeaks peaks_of(const Ledger& ledger) {
  MemoryPeaks peaks{.total = ledger.total_peak(), .setup = ledger.setup_peak()};
  for (int c = 0; c < category_count; ++c)
    peaks.by_category[c] = ledger.peak(static_cast<Category>(c));
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

// Returns what it sent and received.
TrafficTable dry_step(const DryModel& model, Engine& engine) {
  const TrafficTable before = engine.comm().traffic().table();
  for (int j = 0; j < engine.options().micro_steps; ++j)
    model.micro_step(engine);
  engine.synchronize();
  return difference(engine.comm().traffic().table(), before);
}

// Of the model only what its engine takes over is booked, as where a run builds it unplaced.
DryModel make_unplaced(const MakeDryModel& make) {
  const DeviceGuard guard(unplaced);
  return make();
}

EnginePlan run_dry(const MakeDryModel& make,
                   const Options& options,
                   const DryGroup& group,
                   int rank,
                   const Hardware& on,
                   const SeesShards& sees) {
  const DeviceGuard guard(group.device);
  const int threads =
      group.threads > 0 ? group.threads : std::max(1, available_processors() / group.ranks);
  configure(group.device, {.threads = threads});
  pool(group.device).reset_peaks();
  pool(host_of(group.device)).reset_peaks();
  auto comm = connect_sim(rank, group.ranks, group.device, group.imitated, sees);
  const DryModel model = make_unplaced(make);
  auto engine = initialize(model.units, options, *comm);
  EnginePlan plan;
  plan.engine = options.engine;
  plan.rank = rank;
  dry_step(model, *engine);
  const ProductScope computed;
  plan.traffic = dry_step(model, *engine);
  for (const Product& p : computed.products())
    plan.flops += p.flops();
  plan.memory = pool(group.device).ledger();
  plan.host = pool(host_of(group.device)).ledger();
  plan.most = peaks_of(plan.memory);
  if (on.flops > 0)
    estimate(plan, options, on);
  return plan;
}

// What every rank owns of each sum in the order of the engine's calls, found by running one of
// them.
std::vector<std::vector<int64_t>> owned_by_rank(const MakeDryModel& make,
                                                Options options,
                                                const DryGroup& group) {
  options.reduction = Algorithm::ordered;  // the partition is the same, and the group sees it
  std::vector<std::vector<int64_t>> owned(group.ranks);
  run_dry(make, options, group, 0, {}, [&](const Shards& shards) {
    for (int rank = 0; rank < shards.ranks(); ++rank)
      owned[rank].push_back(shards.count(rank));
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
    const auto& mine = owned[rank];
    const bool covered = std::any_of(chosen.begin(), chosen.end(), [&](int other) {
      const auto& more = owned[other];
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

DryGroup dry_group(const Comm& comm) {
  return {.ranks = comm.size(),
          .threads = threads(comm.device()),
          .device = meta(comm.rank() % max_devices),
          .imitated = under_launcher() ? Imitated::mpi : Imitated::threads};
}

EnginePlan plan_rank(const MakeDryModel& make,
                     const Options& options,
                     const DryGroup& group,
                     int rank,
                     const Hardware& on) {
  return run_dry(make, options, group, rank, on, {});
}

EnginePlan plan_engine(const MakeDryModel& make,
                       const Options& options,
                       const DryGroup& group,
                       const Hardware& on) {
  EnginePlan most = plan_rank(make, options, group, 0, on);
  if (group.ranks == 1)
    return most;
  MemoryPeaks peaks = most.most;
  for (const int rank : ranks_to_plan(owned_by_rank(make, options, group))) {
    EnginePlan plan = plan_rank(make, options, group, rank, on);
    raise_to(peaks, plan.most);
    if (plan.memory.needed() > most.memory.needed())
      most = std::move(plan);
  }
  most.most = peaks;
  return most;
}

}  // namespace sg::dist

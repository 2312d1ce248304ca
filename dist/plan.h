// Plans: what a training step of any model would hold, send and take at any scale, found by running
// the real engines on a meta device in a simulated group: nothing is allocated and nothing is
// computed. And `auto`: the first engine of the ladder ddp, zero1, zero2, zero3 that fits.
#pragma once
#include <array>
#include <functional>
#include <string>
#include <vector>

#include "core/ledger.h"
#include "dist/comm/sim.h"
#include "dist/comm/traffic.h"
#include "dist/engine.h"

namespace sg::dist {

// A model as a dry run has it.
struct DryModel {
  std::vector<Unit> units;  // as initialize takes them
  // One micro-step as the program makes it: forward, backward and step of the engine, over data of
  // the run's shapes that it makes on the current device. Owns the model that it runs.
  std::function<void(Engine& engine)> micro_step;
};

// Makes the model on the current device, `unplaced`. Called once for each rank and engine that is
// planned:
//
//   auto make = [=] {
//     auto model = std::make_shared<MyModel>(sizes);
//     const auto micro_step = [=](Engine& engine) {
//       const Tensor tokens = empty({batch, context}, DType::i32);
//       engine.backward(engine.forward([&] { return model->loss(tokens); }));
//       engine.step();
//     };
//     return DryModel{model->units(), micro_step};
//   };
//   auto engine = initialize(model.units(), {.engine = EngineKind::automatic}, comm, make);
using MakeDryModel = std::function<DryModel()>;

// The group that is planned for.
struct DryGroup {
  int ranks = 1;
  int threads = 0;          // of a rank's device; 0: this machine's processors dealt to the ranks
  Device device = meta(0);  // where ranks live one after another; only this thread may use it
  Imitated imitated = Imitated::threads;
};
DryGroup dry_group(const Comm& comm);  // like this one, on a meta device of the rank's own

// A device and its links, for the estimate of a step's time.
struct Hardware {
  std::string name;
  double flops = 0;             // of products in the plan's precision, per second
  double memory_bandwidth = 0;  // bytes per second
  double link_bandwidth = 0;    // bytes per second that a rank sends
  double link_latency = 0;      // seconds per call
};

// Peaks in bytes: of a rank, or each the largest of several ranks'.
struct MemoryPeaks {
  std::array<uint64_t, category_count> by_category{};
  uint64_t model_states = 0;  // parameters + gradients + optimizer + accumulation
  uint64_t total = 0, setup = 0;

  uint64_t of(Category category) const { return by_category[static_cast<size_t>(category)]; }
};

struct EnginePlan {
  EngineKind engine = EngineKind::none;
  int rank = 0;
  Ledger memory;           // of the rank
  Ledger host;             // what it has in its host's memory
  MemoryPeaks most;        // of all ranks that were planned
  TrafficTable traffic{};  // what it sends and receives in one step
  double flops = 0;        // of a step's products, those computed again included
  // Where the plan knows the hardware:
  double compute_seconds = 0, communication_seconds = 0, exposed_seconds = 0;

  double step_seconds() const { return compute_seconds + exposed_seconds; }
};

// A rank's life under `options`, which name the engine. Two steps run, the first recording ZeRO-3's
// order; the second's traffic counts. The books are those of a real run, to the byte.
EnginePlan plan_rank(const MakeDryModel& make,
                     const Options& options,
                     const DryGroup& group,
                     int rank,
                     const Hardware& on = {});
// The plan of the rank that needs most memory, and in `most` the peaks of all ranks: exact for up
// to 64 ranks. Ranks that own no more than another of any sum are left out; beyond 64 ranks the
// eight that own most are planned besides rank 0, and a figure may miss a chunk of 1,024 elements.
EnginePlan plan_engine(const MakeDryModel& make,
                       const Options& options,
                       const DryGroup& group,
                       const Hardware& on = {});

// An engine of the ladder beside the device where it is tightest.
struct Rung {
  EngineKind engine = EngineKind::none;
  uint64_t needed = 0, capacity = 0;  // bytes; Pool::unlimited
  int rank = 0;
  bool fits() const { return needed <= capacity; }
};
std::string text_of(const Rung& rung);  // "auto: ddp needs 96.3 MiB on rank 0, which has …"

// Collective; every rank gets the same rungs, the last of which fits into what every rank's device
// has free, as a dry run of the real run's world, threads and options finds. A model that wasn't
// built unplaced is held already. `options` have a definite order of accumulation.
// Error out_of_memory where none fits, with every rung's figures.
std::vector<Rung> choose_engine(const MakeDryModel& make, const Options& options, Comm& comm);

// initialize (engine.h), and where options.engine is automatic the engine that choose_engine takes,
// which engine->options() tells.
std::unique_ptr<Engine> initialize(std::vector<Unit> units,
                                   Options options,
                                   Comm& comm,
                                   const MakeDryModel& make);

}  // namespace sg::dist

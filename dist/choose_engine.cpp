#include <algorithm>
#include <cstring>

#include "core/device.h"
#include "core/error.h"
#include "dist/engines/facts.h"
#include "dist/plan.h"

namespace sg::dist {
namespace {

struct Figures {  // what ranks tell each other
  uint64_t needed, capacity;
};

// What the device can still give.
uint64_t free_of(Device device) {
  const uint64_t capacity = pool(device).capacity(), held = pool(device).ledger().total();
  return capacity == Pool::unlimited ? capacity : capacity - std::min(capacity, held);
}

// The engine as the rank with the least room to spare has it.
Rung tightest(EngineKind engine, const std::vector<std::string>& messages) {
  const auto spare = [](const Rung& r) {
    return static_cast<double>(r.capacity) - static_cast<double>(r.needed);
  };
  std::vector<Rung> rungs;
  for (size_t rank = 0; rank < messages.size(); ++rank) {
    Figures figures;
    std::memcpy(&figures, messages[rank].data(), sizeof figures);
    rungs.push_back({engine, figures.needed, figures.capacity, static_cast<int>(rank)});
  }
  return *std::min_element(rungs.begin(), rungs.end(), [&](const Rung& a, const Rung& b) {
    return spare(a) < spare(b);
  });
}

}  // namespace

std::vector<Rung> choose_engine(const MakeDryModel& make, const Options& given, Comm& comm) {
  check(given.accumulation != Accumulation::automatic,
        "engine auto: the order of accumulation is open");
  Options options = given;
  std::vector<Rung> rungs;
  std::string tried;
  for (const EngineKind engine : ladder()) {
    if (given.offload_optimizer != OffloadDevice::none && !has_any(zero_engines, engine))
      continue;
    options.engine = engine;
    const EnginePlan plan = plan_rank(make, options, dry_group(comm), comm.rank());
    const Figures mine{plan.memory.needed(), free_of(comm.device())};
    rungs.push_back(
        tightest(engine,
                 comm.all_gather_bytes({"auto.figures", Phase::setup},
                                       {reinterpret_cast<const char*>(&mine), sizeof mine})));
    if (rungs.back().fits())
      return rungs;
    tried += "\n  " + text_of(rungs.back());
  }
  fail(ErrorKind::out_of_memory,
       "engine auto: none fits {} ranks' devices; more ranks, a smaller micro-batch or devices "
       "with more memory:{}",
       comm.size(),
       tried);
}

std::string text_of(const Rung& rung) {
  const std::string room =
      rung.capacity == Pool::unlimited ? "memory without a limit" : format_bytes(rung.capacity);
  return fmt::format("auto: {} needs {} on rank {}, which has {}: {}",
                     name_of(rung.engine),
                     format_bytes(rung.needed),
                     rung.rank,
                     room,
                     rung.fits() ? "taken" : "too much");
}

std::unique_ptr<Engine> initialize(std::vector<Unit> units,
                                   Options options,
                                   Comm& comm,
                                   const MakeDryModel& make) {
  if (options.engine == EngineKind::automatic) {
    // The order of accumulation is the run's, not the engine's.
    if (options.accumulation == Accumulation::automatic)
      options.accumulation = facts_of(options.engine).order;
    options.engine = choose_engine(make, options, comm).back().engine;
  }
  return initialize(std::move(units), options, comm);
}

}  // namespace sg::dist

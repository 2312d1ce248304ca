// Sharded parameters (zero3): each rank keeps its shards; a unit's parameters are whole from the
// gather before its call, forward or backward, to the release after it. Persistent ones, which are
// small, stay whole on every rank.
#pragma once
#include <functional>
#include <span>
#include <vector>

#include "dist/engines/live_units.h"
#include "dist/engines/parameters.h"
#include "dist/engines/unit_calls.h"
#include "dist/engines/unit_gatherer.h"

namespace sg::dist {

class GatheredByUnit final : public Parameters, public UnitGatherer {
 public:
  // calls_ended: called as soon as no call of its units can give a parameter more gradient in this
  // micro-step, at the same moment on all ranks (unit_calls.h). Sets the units' hooks.
  GatheredByUnit(const EngineLayout& on, std::function<void(int position)> calls_ended);

  Tensor place(const Placed& parameter) override;
  Tensor updated(const Shard& shard) override { return kept(shard.begin, shard.end); }
  void before_use(int position) override;
  void wait() override;
  bool give_back(bool alone) override;
  void gather(std::span<const Variable> parameters) override;
  void release(std::span<const Variable> parameters) override;
  void begin_micro_step() override;
  void end_micro_step() override;

  // After an update: everybody is sent the persistent parameters. The others are gathered before
  // they are used.
  void all_gather_persistent();

 private:
  // What belongs to a unit: a tied parameter to the first that uses it.
  struct Belongings {
    std::vector<int> gathered, persistent;  // buckets
    int64_t begin = 0, end = 0;             // of the gathered ones, in the flat space
    std::vector<Work> arriving;             // persistent parameters, after an update
    bool used_outside = false;  // of the unit's calls, in this micro-step: it stays until the end
    int64_t size() const { return end - begin; }
  };
  struct Kept {
    int64_t begin = 0, end = 0;  // in the flat space
    Tensor values;               // (end − begin)
  };

  static std::vector<Belongings> find_belongings(const EngineLayout& on);
  static std::vector<Kept> allocate(const EngineLayout& on);
  LiveUnits make_live_units();
  void hook(size_t unit);
  Tensor kept(int64_t begin, int64_t end) const;
  std::vector<size_t> owners_of(std::span<const Variable> parameters) const;
  std::vector<int> positions_of(size_t unit) const;
  void gather(std::span<const size_t> units);
  void forget_uses();
  void count_ended(std::span<const int> positions);
  // Owners send everybody their shards of a unit: of the gathered buckets into `whole`, of the
  // persistent ones to where they lie.
  std::vector<Work> send_gathered(size_t unit, const Tensor& whole);
  std::vector<Work> send_persistent(size_t unit);
  Work send(size_t unit, int bucket, int message, const Tensor& shard, const Tensor& whole);
  std::vector<Tensor> places_for_all();

  const EngineLayout on_;
  const std::function<void(int position)> calls_ended_;
  UnitCalls calls_;
  std::vector<Belongings> units_;
  std::vector<Kept> kept_;  // parameters that this rank always has: shards and persistent ones
  LiveUnits live_;          // gathered parameters, by unit
};

}  // namespace sg::dist

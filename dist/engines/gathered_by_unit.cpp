#include "dist/engines/gathered_by_unit.h"

#include <algorithm>
#include <utility>

#include "autograd/recompute.h"
#include "core/error.h"
#include "core/ops.h"
#include "core/shard_array.h"

namespace sg::dist {

GatheredByUnit::GatheredByUnit(const EngineLayout& on,
                               std::function<void(int position)> calls_ended)
    : on_(on),
      calls_ended_(std::move(calls_ended)),
      calls_(on),
      units_(find_belongings(on)),
      kept_(allocate(on)),
      live_(make_live_units()) {
  for (size_t u = 0; u < units_.size(); ++u)
    hook(u);
}

// ---- memory

std::vector<GatheredByUnit::Belongings> GatheredByUnit::find_belongings(const EngineLayout& on) {
  std::vector<Belongings> units(on.units.size());
  int b = 0;
  for (const Bucket& bucket : on.space.buckets()) {
    Belongings& unit = units[on.space.parameter(bucket.first).unit];
    (bucket.persistent ? unit.persistent : unit.gathered).push_back(b++);
    if (bucket.persistent)
      continue;
    if (unit.gathered.size() == 1)
      unit.begin = bucket.begin;
    unit.end = bucket.end;
  }
  return units;
}

// Shards of what is gathered, the whole of what is persistent.
std::vector<GatheredByUnit::Kept> GatheredByUnit::allocate(const EngineLayout& on) {
  std::vector<Kept> kept;
  int64_t persistent = 0;
  int64_t sharded = 0;
  const auto is_sharded = [&](const Shard& shard) {
    return !on.space.bucket(shard.bucket).persistent;
  };
  for (const Bucket& bucket : on.space.buckets())
    persistent += bucket.persistent ? bucket.size() : 0;
  for (const Shard& shard : on.shards)
    sharded += is_sharded(shard) ? shard.size() : 0;
  ShardArray whole(persistent, on.options.precision, Category::parameters);
  ShardArray shards(sharded, on.options.precision, Category::parameters);
  for (const Bucket& bucket : on.space.buckets())
    if (bucket.persistent)
      kept.push_back({bucket.begin, bucket.end, whole.next(bucket.size())});
  for (const Shard& shard : on.shards)
    if (is_sharded(shard))
      kept.push_back({shard.begin, shard.end, shards.next(shard.size())});
  std::sort(
      kept.begin(), kept.end(), [](const Kept& a, const Kept& b) { return a.begin < b.begin; });
  return kept;
}

LiveUnits GatheredByUnit::make_live_units() {
  std::vector<int64_t> sizes;
  std::vector<std::string> names;
  for (size_t u = 0; u < units_.size(); ++u) {
    sizes.push_back(units_[u].size());
    names.push_back(on_.units[u].name);
  }
  const Options& options = on_.options;
  const LiveUnits::Budget budget{
      options.prefetch_elements, options.max_live_elements, options.overlap};
  const auto send_into_slot = [this](size_t u) {
    const Shape shape{units_[u].size()};
    const Tensor whole(live_.slot(u), 0, shape, dense_strides(shape), on_.options.precision);
    return send_gathered(u, whole);
  };
  return {on_.comm.device(), options.precision, sizes, names, budget, send_into_slot};
}

// A flat range of what this rank always has; empty where it has nothing of it.
Tensor GatheredByUnit::kept(int64_t begin, int64_t end) const {
  const auto ends_before = [&](const Kept& run) { return run.end <= begin; };
  const auto run = std::partition_point(kept_.begin(), kept_.end(), ends_before);
  if (run == kept_.end() || run->begin >= end)
    return empty({0}, on_.options.precision);
  const int64_t first = std::max(begin, run->begin);
  const int64_t last = std::min(end, run->end);
  return run->values.slice(0, first - run->begin, last - run->begin);
}

Tensor GatheredByUnit::place(const Placed& placed) {
  const Shape& shape = placed.parameter.shape();
  if (on_.space.bucket(placed.bucket).persistent)
    return kept(placed.offset, placed.end()).reshape(shape);
  const int64_t offset = placed.offset - units_[placed.unit].begin;
  return {live_.slot(placed.unit), offset, shape, dense_strides(shape), on_.options.precision};
}

// ---- units come and go

// A unit needs its own parameters and, where it uses tied ones, those of the units that they belong
// to.
void GatheredByUnit::hook(size_t u) {
  const std::vector<size_t> needed = owners_of(on_.units[u].parameters);
  live_.check_fits(needed, on_.units[u].name);
  const auto before_forward = [this, u, needed] {
    gather(needed);
    // A region's calls are counted the first time: the second one's backward is theirs.
    if (live_.in_micro_step() && !recomputing())
      calls_.forward(u);
  };
  const auto after_forward = [this, needed] {
    if (recomputing())
      live_.release_after_recompute(needed);
    else
      live_.release_after_forward(needed);
  };
  const auto before_backward = [this, u, needed] {
    gather(needed);
    calls_.backward_begins(u);
  };
  const auto after_backward = [this, u, needed, used = positions_of(u)] {
    live_.release(needed);
    calls_.backward_ends(u);
    count_ended(used);
  };
  const auto undo = [this, needed] { live_.release(needed); };
  *on_.units[u].hooks = {before_forward, after_forward, before_backward, after_backward, undo};
}

void GatheredByUnit::gather(std::span<const size_t> units) {
  live_.gather(units);
  for (size_t owner : units)
    wait_for(units_[owner].arriving);
}

void GatheredByUnit::count_ended(std::span<const int> positions) {
  for (int position : positions)
    if (calls_.all_ended(position))
      calls_ended_(position);
}

std::vector<int> GatheredByUnit::positions_of(size_t u) const {
  std::vector<int> positions;
  for (const Variable& p : on_.units[u].parameters)
    if (const int position = on_.space.position_of(p); position >= 0)
      positions.push_back(position);
  return positions;
}

// The units that these belong to.
std::vector<size_t> GatheredByUnit::owners_of(std::span<const Variable> parameters) const {
  std::vector<size_t> owners;
  for (const Variable& p : parameters) {
    if (on_.space.position_of(p) < 0)
      continue;
    const size_t owner = on_.map.find(p)->owner;
    if (std::find(owners.begin(), owners.end(), owner) == owners.end())
      owners.push_back(owner);
  }
  return owners;
}

// Within a call of a unit that has it a parameter is there. Elsewhere in a micro-step its unit is
// gathered now and stays until the end; between steps somebody must say when, by the unit's call or
// by Engine::gather.
void GatheredByUnit::before_use(int position) {
  const Placed& placed = on_.space.parameter(position);
  const size_t owner = placed.unit;
  Belongings& unit = units_[owner];
  wait_for(unit.arriving);
  const bool persistent = on_.space.bucket(placed.bucket).persistent;
  if (!live_.in_micro_step()) {
    check(persistent || live_.live(owner),
          "zero3: {} is away: between steps use it within a call of its unit {} or within gather()",
          placed.parameter.name(),
          on_.units[owner].name);
    return;
  }
  if (calls_.within(position))
    return;
  calls_.read_outside(position);
  if (persistent || std::exchange(unit.used_outside, true))
    return;
  live_.gather({&owner, 1});
}

void GatheredByUnit::gather(std::span<const Variable> parameters) {
  const std::vector<size_t> owners = owners_of(parameters);
  live_.check_fits(owners, "gather");
  live_.gather(owners);
}

void GatheredByUnit::release(std::span<const Variable> parameters) {
  live_.release(owners_of(parameters));
}

void GatheredByUnit::begin_micro_step() {
  forget_uses();
  live_.begin_micro_step();
}

void GatheredByUnit::end_micro_step() {
  live_.end_micro_step();
  forget_uses();
}

void GatheredByUnit::forget_uses() {
  calls_.forget();
  for (Belongings& unit : units_)
    unit.used_outside = false;
}

// ---- what crosses

Work GatheredByUnit::send(
    size_t u, int bucket, int message, const Tensor& shard, const Tensor& whole) {
  on_.comm.stream().wait(on_.updated[bucket]);
  const Bucket& b = on_.space.bucket(bucket);
  const bool of_step = b.persistent || live_.in_micro_step();
  const Call call{fmt::format("zero3.parameters.{}.{} of {}", bucket, message, on_.units[u].name),
                  of_step ? Phase::step : Phase::eval};
  return on_.comm.all_gather(call, shard, b.messages[message].shards, whole);
}

std::vector<Work> GatheredByUnit::send_gathered(size_t u, const Tensor& place) {
  std::vector<Work> works;
  for (int b : units_[u].gathered) {
    int m = 0;
    for (const Message& message : on_.space.bucket(b).messages) {
      const int64_t begin = message.begin - units_[u].begin;
      const Tensor whole = place.slice(0, begin, begin + message.size());
      const Tensor shard = kept(message.begin, message.end);
      works.push_back(send(u, b, m++, shard, whole));
    }
  }
  return works;
}

std::vector<Work> GatheredByUnit::send_persistent(size_t u) {
  std::vector<Work> works;
  for (int b : units_[u].persistent) {
    int m = 0;
    for (const Message& message : on_.space.bucket(b).messages) {
      const Tensor whole = kept(message.begin, message.end);
      const Tensor shard = message.shards.of(whole, on_.comm.rank());
      works.push_back(send(u, b, m++, shard, whole));
    }
  }
  return works;
}

void GatheredByUnit::all_gather_persistent() {
  for (size_t u = 0; u < units_.size(); ++u) {
    units_[u].arriving = send_persistent(u);
    if (!on_.options.overlap)
      wait_for(units_[u].arriving);
  }
}

void GatheredByUnit::wait() {
  for (Belongings& unit : units_)
    wait_for(unit.arriving);
}

// ---- the end

// Units come back whole where every rank has room for all of them.
bool GatheredByUnit::give_back(bool alone) {
  wait();
  const std::vector<Tensor> places = alone ? std::vector<Tensor>() : places_for_all();
  if (places.empty())
    return false;
  for (size_t u = 0; u < units_.size(); ++u) {
    std::vector<Work> arriving = send_gathered(u, places[u]);
    wait_for(arriving);
  }
  for (const Placed& placed : on_.space.parameters()) {
    if (on_.space.bucket(placed.bucket).persistent)
      continue;
    const int64_t begin = placed.offset - units_[placed.unit].begin;
    const Tensor value = places[placed.unit].slice(0, begin, begin + placed.size);
    Variable p = placed.parameter;
    p.set_tensor(value.reshape(p.shape()));
  }
  return true;
}

// A flat array for each unit; none at all where some rank hasn't room for them.
std::vector<Tensor> GatheredByUnit::places_for_all() {
  std::vector<Tensor> places;
  try {
    CategoryScope scope(Category::parameters);
    for (const Belongings& unit : units_)
      places.push_back(empty({unit.size()}, on_.options.precision));
  } catch (const OutOfMemory&) {
    places.clear();
  }
  const std::string mine = places.empty() ? "no room" : "room";
  for (const std::string& theirs : on_.comm.all_gather_bytes({"zero3.end", Phase::setup}, mine))
    if (theirs != "room")
      return {};
  return places;
}

}  // namespace sg::dist

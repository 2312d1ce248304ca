// The tables of the numerics ("Memory of model states", "Traffic") as functions, for tests that
// hold ledgers against them.
#pragma once
#include <algorithm>
#include <bit>
#include <vector>

#include "dist/engine.h"
#include "dist/engines/flat_space.h"

namespace sg::dist::testing {

// Element counts that the tables speak of, by rank.
struct Sizes {
  uint64_t phi = 0;
  std::vector<uint64_t> owned;    // s_r of the sharded engines
  std::vector<uint64_t> reduced;  // s_r inside ddp's all-reduces, summed over messages
  // zero3: of parts of the space, elements and what each rank owns of them.
  struct Part {
    uint64_t phi = 0;
    std::vector<uint64_t> owned;
  };
  Part persistent;  // parameters that stay whole; not in the next two
  Part
      tied;  // units that another unit's call gathers too, since it uses a tied parameter of theirs
  Part kept;  // what the last unit needs, where it stays from its forward to its backward
};

// `units`: f32 parameters, of which frozen ones don't count, run in their order. `options`:
// accumulation isn't automatic.
inline Sizes sizes_of(const std::vector<Unit>& units, const Options& options, int ranks) {
  std::vector<Variable> parameters;
  std::vector<int> unit_of, tied_units, last_needs;
  for (size_t u = 0; u < units.size(); ++u) {
    for (const Variable& p : units[u].parameters) {
      if (!p.requires_grad())
        continue;
      const auto known = std::find(parameters.begin(), parameters.end(), p);
      const bool tied = known != parameters.end();
      const int owner =
          tied ? unit_of[static_cast<size_t>(known - parameters.begin())] : static_cast<int>(u);
      if (tied)
        tied_units.push_back(owner);
      else
        parameters.push_back(p), unit_of.push_back(owner);
      if (u + 1 == units.size() && std::count(last_needs.begin(), last_needs.end(), owner) == 0)
        last_needs.push_back(owner);
    }
  }
  const FlatSpace space(parameters,
                        options,
                        ranks,
                        options.engine == EngineKind::zero3 ? unit_of : std::vector<int>{});
  Sizes sizes;
  sizes.phi = static_cast<uint64_t>(space.size());
  const std::vector<uint64_t> none(static_cast<size_t>(ranks));
  sizes.owned = sizes.reduced = sizes.persistent.owned = sizes.tied.owned = sizes.kept.owned = none;
  const auto add = [&](Sizes::Part& part, const Bucket& bucket, std::ptrdiff_t times) {
    const auto n = static_cast<uint64_t>(times);
    part.phi += n * static_cast<uint64_t>(bucket.size());
    for (const Message& message : bucket.messages)
      for (int r = 0; r < ranks; ++r)
        part.owned[static_cast<size_t>(r)] += n * static_cast<uint64_t>(message.shards.count(r));
  };
  for (const Bucket& bucket : space.buckets()) {
    for (const Message& message : bucket.messages) {
      for (int r = 0; r < ranks; ++r) {
        sizes.owned[static_cast<size_t>(r)] += static_cast<uint64_t>(message.shards.count(r));
        sizes.reduced[static_cast<size_t>(r)] +=
            static_cast<uint64_t>(Shards::even(message.size(), ranks).count(r));
      }
    }
    const int unit = unit_of[static_cast<size_t>(
        space.parameters()[static_cast<size_t>(bucket.first)].registration)];
    if (bucket.persistent) {
      add(sizes.persistent, bucket, 1);
    } else {
      add(sizes.tied, bucket, std::count(tied_units.begin(), tied_units.end(), unit));
      add(sizes.kept, bucket, std::count(last_needs.begin(), last_needs.end(), unit));
    }
  }
  if (sizes.kept.phi > static_cast<uint64_t>(options.prefetch_elements))
    sizes.kept = {0, none};
  return sizes;
}

// ---- traffic, bytes of one applied step

struct ExpectedTraffic {
  uint64_t sent = 0, received = 0;

  // `bytes` per element, all its crossings together.
  void add_reduce_scatter(uint64_t bytes, uint64_t n, uint64_t phi, uint64_t s) {
    sent += bytes * (phi - s);
    received += bytes * (n - 1) * s;
  }
  void add_all_gather(uint64_t bytes, uint64_t n, uint64_t phi, uint64_t s) {
    sent += bytes * (n - 1) * s;
    received += bytes * (phi - s);
  }
};

inline ExpectedTraffic expected_traffic(const Options& options,
                                        const Sizes& sizes,
                                        int ranks,
                                        int rank) {
  const auto n = static_cast<uint64_t>(ranks), k = static_cast<uint64_t>(options.micro_steps),
             phi = sizes.phi;
  const uint64_t element = size_of(options.precision), s = sizes.owned[static_cast<size_t>(rank)];
  const uint64_t crossing = size_of(options.communication.value_or(options.precision)) *
                            (options.accumulation == Accumulation::ranks_first ? k : 1);
  ExpectedTraffic e;
  if (n == 1)
    return e;
  const auto add_gathers = [&](const Sizes::Part& part,
                               uint64_t times) {  // modulo 2^64: a negative number takes away
    e.add_all_gather(times * element, n, part.phi, part.owned[static_cast<size_t>(rank)]);
  };
  switch (options.engine) {
    case EngineKind::none:
    case EngineKind::automatic: break;
    case EngineKind::dp:  // replica 0 owns everything
      e.add_reduce_scatter(crossing, n, phi, rank == 0 ? phi : 0);
      e.add_all_gather(element, n, phi, rank == 0 ? phi : 0);
      break;
    case EngineKind::ddp: {
      const uint64_t reduced = sizes.reduced[static_cast<size_t>(rank)];
      e.add_reduce_scatter(crossing, n, phi, reduced);
      // Elastic sums come back in f32.
      e.add_all_gather(options.elastic_determinism ? 4 * k : crossing, n, phi, reduced);
      break;
    }
    case EngineKind::zero1:
    case EngineKind::zero2:
      e.add_reduce_scatter(crossing, n, phi, s);
      e.add_all_gather(element, n, phi, s);
      break;
    case EngineKind::zero3:
      e.add_reduce_scatter(crossing, n, phi, s);
      e.add_all_gather(2 * k * element, n, phi, s);
      add_gathers(sizes.tied, 2 * k);  // second uses
      add_gathers(sizes.kept, 0 - k);
      add_gathers(sizes.persistent, 1 - 2 * k);  // only after the update
      break;
  }
  return e;
}

// ---- model states, bytes

struct ExpectedStates {
  uint64_t parameters = 0, gradients = 0, optimizer = 0, accumulation = 0;
};

// With Adam.
inline ExpectedStates expected_states(const Options& options, const Sizes& sizes, int rank) {
  const uint64_t p = size_of(options.precision), g = p,
                 k = options.precision == DType::f32 ? 8 : 12;
  const uint64_t phi = sizes.phi, s = sizes.owned[static_cast<size_t>(rank)],
                 dp_owned = rank == 0 ? phi : 0;
  // Means have the dtype in which gradients cross; where it isn't theirs, both are kept.
  const uint64_t c = size_of(options.communication.value_or(options.precision));
  ExpectedStates e{p * phi, g * phi, k * phi, 4 * phi};
  if (options.engine == EngineKind::dp)
    e.optimizer = k * dp_owned, e.accumulation = 4 * dp_owned;
  if (options.engine >= EngineKind::zero1)
    e.optimizer = k * s, e.accumulation = 4 * s;
  if (options.communication.value_or(options.precision) != options.precision)
    e.gradients += c * (options.engine == EngineKind::dp    ? dp_owned
                        : options.engine == EngineKind::ddp ? phi
                                                            : s);
  if (options.engine >= EngineKind::zero2)
    e.gradients = c * s;
  if (options.engine >= EngineKind::zero3)
    e.parameters =
        p * (s + sizes.persistent.phi - sizes.persistent.owned[static_cast<size_t>(rank)]);
  if (options.elastic_determinism) {
    e.accumulation *= std::bit_width(static_cast<unsigned>(options.micro_steps));
    if (options.engine >= EngineKind::zero2)
      e.gradients = 0;
    return e;
  }
  if (options.accumulation == Accumulation::local_first)
    e.accumulation = 4 * phi;
  if (options.micro_steps == 1)
    e.accumulation = 0;
  return e;
}

}  // namespace sg::dist::testing

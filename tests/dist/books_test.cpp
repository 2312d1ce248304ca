// The ledgers against the formulas of the numerics: bytes held per category, bytes sent and received per operation.
#include <gtest/gtest.h>

#include <bit>

#include "dist/flat_space.h"
#include "tests/dist/tiny_model.h"

namespace sg::dist::testing {
namespace {

constexpr uint64_t table_size = 131 * 24;  // the unit that the tied classifier uses again

struct Case {
  EngineKind engine;
  int ranks;
  int micro_steps;
  Accumulation order;
  DType precision;
  bool elastic = false;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (EngineKind engine : {EngineKind::dp, EngineKind::ddp, EngineKind::zero1, EngineKind::zero2, EngineKind::zero3}) {
    for (int ranks : {1, 2, 3, 4}) {
      for (int k : {1, 4}) {
        for (Accumulation order : {Accumulation::local_first, Accumulation::ranks_first}) {
          for (DType precision : {DType::f32, DType::bf16}) {
            if (k == 1 && order == Accumulation::ranks_first) continue;
            all.push_back({engine, ranks, k, order, precision});
          }
        }
      }
    }
    for (int ranks : {1, 2, 4})
      for (int k : {1, 3, 4})
        for (DType precision : {DType::f32, DType::bf16})
          all.push_back({engine, ranks, k, Accumulation::ranks_first, precision, true});
  }
  return all;
}

std::string describe(const Case& c) {
  return fmt::format("{} N={} k={} {} {}{}", name_of(c.engine), c.ranks, c.micro_steps, name_of(c.order),
                     name_of(c.precision), c.elastic ? " elastic" : "");
}

Training training_of(const Case& c) {
  Training r;
  r.ranks = c.ranks;
  r.steps = 2;
  r.options.engine = c.engine;
  r.options.micro_steps = c.micro_steps;
  r.options.accumulation = c.order;
  r.options.precision = c.precision;
  r.options.elastic_determinism = c.elastic;
  r.options.first_bucket_bytes = 3000;
  r.options.bucket_bytes = 9000;
  return r;
}

// Element counts that the formulas speak of, for each rank.
struct Sizes {
  uint64_t phi = 0;
  std::vector<uint64_t> owned;        // s_r of the sharded engines
  std::vector<uint64_t> reduced;      // s_r inside ddp's all-reduces, summed over messages
  std::vector<uint64_t> owned_table;  // s_r of the tied unit
};

Sizes sizes_of(const Training& r) {
  const TinyModel model(true);
  std::vector<Variable> parameters;
  std::vector<int> unit_of;
  const std::vector<Unit> units = model.units();
  for (size_t u = 0; u < 2; ++u) {
    for (const Variable& p : units[u].parameters) {
      parameters.push_back(p);
      unit_of.push_back(static_cast<int>(u));
    }
  }
  const FlatSpace space(parameters, r.options, r.ranks,
                        r.options.engine == EngineKind::zero3 ? unit_of : std::vector<int>{});
  Sizes sizes;
  sizes.phi = static_cast<uint64_t>(space.size());
  for (int rank = 0; rank < r.ranks; ++rank) {
    uint64_t owned = 0, reduced = 0, table = 0;
    for (const Bucket& bucket : space.buckets()) {
      for (const Message& message : bucket.messages) {
        owned += static_cast<uint64_t>(message.shards.count(rank));
        reduced += static_cast<uint64_t>(Shards::even(message.size(), r.ranks).count(rank));
        if (space.at(bucket.begin).parameter.name() == "table")
          table += static_cast<uint64_t>(message.shards.count(rank));
      }
    }
    sizes.owned.push_back(owned);
    sizes.reduced.push_back(reduced);
    sizes.owned_table.push_back(table);
  }
  return sizes;
}

struct Expected {
  uint64_t sent = 0, received = 0;
};

void add_reduce_scatter(Expected& e, uint64_t bytes, uint64_t n, uint64_t phi, uint64_t s) {
  e.sent += bytes * (phi - s);
  e.received += bytes * (n - 1) * s;
}
void add_all_gather(Expected& e, uint64_t bytes, uint64_t n, uint64_t phi, uint64_t s) {
  e.sent += bytes * (n - 1) * s;
  e.received += bytes * (phi - s);
}

// Bytes of one applied step.
Expected expected_traffic(const Case& c, const Sizes& sizes, int rank) {
  const auto n = static_cast<uint64_t>(c.ranks), k = static_cast<uint64_t>(c.micro_steps), phi = sizes.phi;
  const uint64_t element = size_of(c.precision), s = sizes.owned[static_cast<size_t>(rank)];
  const uint64_t crossing = element * (c.order == Accumulation::ranks_first ? k : 1);
  Expected e;
  if (n == 1) return e;
  switch (c.engine) {
    case EngineKind::none: break;
    case EngineKind::dp:  // replica 0 owns everything
      add_reduce_scatter(e, crossing, n, phi, rank == 0 ? phi : 0);
      add_all_gather(e, element, n, phi, rank == 0 ? phi : 0);
      break;
    case EngineKind::ddp: {
      const uint64_t reduced = sizes.reduced[static_cast<size_t>(rank)];
      add_reduce_scatter(e, crossing, n, phi, reduced);
      add_all_gather(e, c.elastic ? 4 * k : crossing, n, phi, reduced);  // elastic sums come back in f32
      break;
    }
    case EngineKind::zero1:
    case EngineKind::zero2:
      add_reduce_scatter(e, crossing, n, phi, s);
      add_all_gather(e, element, n, phi, s);
      break;
    case EngineKind::zero3:
      add_reduce_scatter(e, crossing, n, phi, s);
      add_all_gather(e, 2 * k * element, n, phi, s);
      add_all_gather(e, 2 * k * element, n, table_size,
                     sizes.owned_table[static_cast<size_t>(rank)]);  // the tied unit's second use
      break;
  }
  return e;
}

TEST(Books, TrafficEqualsTheTable) {
  for (const Case& c : cases()) {
    const Training r = training_of(c);
    const Sizes sizes = sizes_of(r);
    const Outcome outcome = train(r);
    for (int rank = 0; rank < c.ranks; ++rank) {
      Traffic all;
      for (const auto& by_phase : outcome.traffic[static_cast<size_t>(rank)])
        all += by_phase[static_cast<size_t>(Phase::step)];
      const Expected e = expected_traffic(c, sizes, rank);
      EXPECT_EQ(all.sent, e.sent * 2) << describe(c) << " rank " << rank;
      EXPECT_EQ(all.received, e.received * 2) << describe(c) << " rank " << rank;
      EXPECT_EQ(all.padding, 0u) << describe(c);
    }
  }
}

TEST(Books, ModelStatesEqualTheTable) {
  for (const Case& c : cases()) {
    const Training r = training_of(c);
    const Sizes sizes = sizes_of(r);
    const Outcome outcome = train(r);
    const uint64_t p = size_of(c.precision), g = p, optimizer = c.precision == DType::f32 ? 8 : 12;
    for (int rank = 0; rank < c.ranks; ++rank) {
      const uint64_t phi = sizes.phi, s = sizes.owned[static_cast<size_t>(rank)];
      const uint64_t dp_owned = rank == 0 ? phi : 0, levels = std::bit_width(static_cast<unsigned>(c.micro_steps));
      uint64_t parameters = p * phi, gradients = g * phi, states = optimizer * phi, ranks_first = 4 * phi;
      if (c.engine == EngineKind::dp) states = optimizer * dp_owned, ranks_first = 4 * dp_owned;
      if (c.engine >= EngineKind::zero1) states = optimizer * s, ranks_first = 4 * s;
      if (c.engine >= EngineKind::zero2) gradients = g * s;
      if (c.engine >= EngineKind::zero3) parameters = p * s;
      if (c.elastic && c.engine >= EngineKind::zero2) gradients = 0;
      const uint64_t accumulation = c.elastic                              ? levels * ranks_first
                                    : c.micro_steps == 1                   ? 0
                                    : c.order == Accumulation::ranks_first ? ranks_first
                                                                           : 4 * phi;
      const Ledger& memory = outcome.memory[static_cast<size_t>(rank)];
      EXPECT_EQ(memory.peak(Category::parameters), parameters) << describe(c) << " rank " << rank;
      EXPECT_EQ(memory.peak(Category::gradients), gradients) << describe(c) << " rank " << rank;
      EXPECT_EQ(memory.peak(Category::optimizer), states) << describe(c) << " rank " << rank;
      EXPECT_EQ(memory.peak(Category::accumulation), accumulation) << describe(c) << " rank " << rank;
    }
  }
}

// One bucket fills and one is in flight, besides the tied gradient, which waits for its last contribution.
TEST(Books, BucketsOfShardedGradientsAreFreedOnceReduced) {
  for (EngineKind engine : {EngineKind::zero2, EngineKind::zero3}) {
    for (bool overlap : {true, false}) {
      Training r = training_of({engine, 2, 1, Accumulation::local_first, DType::f32});
      r.options.overlap = overlap;
      r.options.bucket_bytes = r.options.first_bucket_bytes = 1;  // every parameter is a bucket
      r.with_unused = false;                                      // it would hold up those behind it until the end
      // An op's weight and bias fill together; with overlap the matrix before them is still in flight.
      const uint64_t tied = table_size * 4, matrix = 48 * 24 * 4, bias = 48 * 4, in_flight = overlap ? matrix : 0;
      EXPECT_LE(train(r).memory[0].peak(Category::buckets), tied + matrix + bias + in_flight) << name_of(engine);
    }
  }
}

TEST(Books, ShardsAreWithinAChunkOfAnEqualShare) {
  for (int ranks : {2, 3, 4}) {
    const Sizes sizes = sizes_of(training_of({EngineKind::zero1, ranks, 1, Accumulation::local_first, DType::f32}));
    for (uint64_t owned : sizes.owned) {
      const auto share = static_cast<int64_t>(sizes.phi) / ranks;
      EXPECT_LE(std::abs(static_cast<int64_t>(owned) - share), norm_chunk) << ranks;
    }
  }
}

}  // namespace
}  // namespace sg::dist::testing

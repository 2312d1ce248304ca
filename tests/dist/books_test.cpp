// The ledgers against the formulas of the numerics: bytes held per category, bytes sent and received per operation.
#include <gtest/gtest.h>

#include "tests/dist/tables.h"
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
  std::optional<DType> communication = {};
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
    for (int ranks : {2, 3})
      for (int k : {1, 4})
        for (Accumulation order : {Accumulation::local_first, Accumulation::ranks_first}) {
          all.push_back({engine, ranks, k, order, DType::f32, false, DType::bf16});
          all.push_back({engine, ranks, k, order, DType::bf16, false, DType::f32});
        }
    for (int ranks : {1, 2, 4})
      for (int k : {1, 3, 4})
        for (DType precision : {DType::f32, DType::bf16})
          all.push_back({engine, ranks, k, Accumulation::ranks_first, precision, true});
  }
  return all;
}

std::string describe(const Case& c) {
  return fmt::format("{} N={} k={} {} {} over {}{}", name_of(c.engine), c.ranks, c.micro_steps, name_of(c.order),
                     name_of(c.precision), name_of(c.communication.value_or(c.precision)), c.elastic ? " elastic" : "");
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
  r.options.communication = c.communication;
  r.options.first_bucket_bytes = 3000;
  r.options.bucket_bytes = 9000;
  return r;
}

Sizes tiny_sizes(const Training& r) { return sizes_of(TinyModel(r.tied, r.with_unused).units(), r.options, r.ranks); }

TEST(Books, TrafficEqualsTheTable) {
  for (const Case& c : cases()) {
    const Training r = training_of(c);
    const Sizes sizes = tiny_sizes(r);
    const Outcome outcome = train(r);
    for (int rank = 0; rank < c.ranks; ++rank) {
      Traffic all;
      for (const auto& by_phase : outcome.traffic[static_cast<size_t>(rank)])
        all += by_phase[static_cast<size_t>(Phase::step)];
      const ExpectedTraffic e = expected_traffic(r.options, sizes, c.ranks, rank);
      EXPECT_EQ(all.sent, e.sent * 2) << describe(c) << " rank " << rank;
      EXPECT_EQ(all.received, e.received * 2) << describe(c) << " rank " << rank;
      EXPECT_EQ(all.padding, 0u) << describe(c);
    }
  }
}

TEST(Books, ModelStatesEqualTheTable) {
  for (const Case& c : cases()) {
    const Training r = training_of(c);
    const Sizes sizes = tiny_sizes(r);
    const Outcome outcome = train(r);
    for (int rank = 0; rank < c.ranks; ++rank) {
      const ExpectedStates e = expected_states(r.options, sizes, rank);
      const Ledger& memory = outcome.memory[static_cast<size_t>(rank)];
      EXPECT_EQ(memory.peak(Category::parameters), e.parameters) << describe(c) << " rank " << rank;
      EXPECT_EQ(memory.peak(Category::gradients), e.gradients) << describe(c) << " rank " << rank;
      EXPECT_EQ(memory.peak(Category::optimizer), e.optimizer) << describe(c) << " rank " << rank;
      EXPECT_EQ(memory.peak(Category::accumulation), e.accumulation) << describe(c) << " rank " << rank;
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
    const Sizes sizes = tiny_sizes(training_of({EngineKind::zero1, ranks, 1, Accumulation::local_first, DType::f32}));
    for (uint64_t owned : sizes.owned) {
      const auto share = static_cast<int64_t>(sizes.phi) / ranks;
      EXPECT_LE(std::abs(static_cast<int64_t>(owned) - share), norm_chunk) << ranks;
    }
  }
}

}  // namespace
}  // namespace sg::dist::testing

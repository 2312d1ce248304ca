// The ledgers against the formulas of the numerics: bytes held per category, bytes sent and
// received per operation.
#include <gtest/gtest.h>

#include "autograd/unit_map.h"
#include "dist/engines/freeze.h"
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
  for (EngineKind engine :
       {EngineKind::dp, EngineKind::ddp, EngineKind::zero1, EngineKind::zero2, EngineKind::zero3}) {
    for (int ranks : {1, 2, 3, 4}) {
      for (int k : {1, 4}) {
        for (Accumulation order : {Accumulation::local_first, Accumulation::ranks_first}) {
          for (DType precision : {DType::f32, DType::bf16}) {
            if (k == 1 && order == Accumulation::ranks_first)
              continue;
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
  return fmt::format("{} N={} k={} {} {} over {}{}",
                     name_of(c.engine),
                     c.ranks,
                     c.micro_steps,
                     name_of(c.order),
                     name_of(c.precision),
                     name_of(c.communication.value_or(c.precision)),
                     c.elastic ? " elastic" : "");
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

Sizes tiny_sizes(const Training& r) {
  const std::vector<Unit> units = TinyModel(r.tied, r.with_unused).units();
  freeze(units, r.options.freeze);
  return sizes_of(units, r.options, r.ranks);
}

// Every rank keeps these whole.
uint64_t frozen_bytes(const Training& r) {
  const std::vector<Unit> units = TinyModel(r.tied, r.with_unused).units();
  freeze(units, r.options.freeze);
  const UnitMap map(units);
  int64_t elements = 0;
  for (const UnitMap::Entry& entry : map.entries())
    elements += entry.parameter.requires_grad() ? 0 : entry.parameter.numel();
  return static_cast<uint64_t>(elements) * size_of(r.options.precision);
}

void expect_traffic(const Training& r, const std::string& what) {
  const Sizes sizes = tiny_sizes(r);
  const Outcome outcome = train(r);
  for (int rank = 0; rank < r.ranks; ++rank) {
    Traffic all;
    for (const auto& by_phase : outcome.traffic[static_cast<size_t>(rank)])
      all += by_phase[static_cast<size_t>(Phase::step)];
    const ExpectedTraffic e = expected_traffic(r.options, sizes, r.ranks, rank);
    EXPECT_EQ(all.sent, e.sent * 2) << what << " rank " << rank;
    EXPECT_EQ(all.received, e.received * 2) << what << " rank " << rank;
    EXPECT_EQ(all.padding, 0u) << what;
  }
}

void expect_states(const Training& r, const std::string& what) {
  const Sizes sizes = tiny_sizes(r);
  const Outcome outcome = train(r);
  for (int rank = 0; rank < r.ranks; ++rank) {
    const ExpectedStates e = expected_states(r.options, sizes, rank);
    const Ledger& memory = outcome.memory[static_cast<size_t>(rank)];
    EXPECT_EQ(memory.peak(Category::parameters), e.parameters + frozen_bytes(r))
        << what << " rank " << rank;
    EXPECT_EQ(memory.peak(Category::gradients), e.gradients) << what << " rank " << rank;
    EXPECT_EQ(memory.peak(Category::optimizer), e.optimizer) << what << " rank " << rank;
    EXPECT_EQ(memory.peak(Category::accumulation), e.accumulation) << what << " rank " << rank;
  }
}

TEST(Books, TrafficEqualsTheTable) {
  for (const Case& c : cases())
    expect_traffic(training_of(c), describe(c));
}

// Frozen parameters have no gradients, no optimizer state and no traffic: the tables with the φ of
// those that are trained.
TEST(Books, FrozenParametersCountAsParametersAlone) {
  for (const Case& c : cases()) {
    if (c.ranks != 2 || c.elastic || c.communication)
      continue;
    for (const char* patterns : {"block.*", "*.gain,block.d*"}) {
      Training r = training_of(c);
      r.tied = false;
      r.options.freeze = patterns;
      expect_traffic(r, describe(c) + " " + patterns);
      expect_states(r, describe(c) + " " + patterns);
    }
  }
}

TEST(Books, ModelStatesEqualTheTable) {
  for (const Case& c : cases())
    expect_states(training_of(c), describe(c));
}

// Parameters below the threshold stay whole: none, some of a unit, a whole unit, all. And with a
// budget ahead in which the last unit doesn't fit, it is gathered twice.
TEST(Books, Zero3sThresholdAndBudgetAreInTheTable) {
  for (const int64_t persistent : {24, 100, 1501, 100'000}) {
    for (const int64_t ahead : {int64_t{0}, int64_t{table_size} - 1, int64_t{table_size}}) {
      for (const PartitionKind partition : {PartitionKind::bucket, PartitionKind::contiguous}) {
        Training r = training_of({EngineKind::zero3, 3, 2, Accumulation::ranks_first, DType::bf16});
        r.options.persistent_elements = persistent;
        r.options.prefetch_elements = ahead;
        r.options.partition = partition;
        const std::string what =
            fmt::format("below {}, ahead {}, {}", persistent, ahead, name_of(partition));
        expect_traffic(r, what);
        expect_states(r, what);
        const uint64_t largest = std::max(table_size, uint64_t{24 + 2 * 48 * 24 + 48 + 1500});
        const Ledger memory = train(r).memory[0];
        EXPECT_LE(memory.peak(Category::live), 2 * (largest + static_cast<uint64_t>(ahead)))
            << what;
      }
    }
  }
}

// One bucket fills and one is in flight, besides the tied gradient, which waits for its last
// contribution.
TEST(Books, BucketsOfShardedGradientsAreFreedOnceReduced) {
  for (EngineKind engine : {EngineKind::zero2, EngineKind::zero3}) {
    for (bool overlap : {true, false}) {
      Training r = training_of({engine, 2, 1, Accumulation::local_first, DType::f32});
      r.options.overlap = overlap;
      r.options.bucket_bytes = r.options.first_bucket_bytes = 1;  // every parameter is a bucket
      r.with_unused = false;  // it would hold up those behind it until the end
      // An op's weight and bias fill together; with overlap the matrix before them is still in
      // flight.
      const uint64_t tied = table_size * 4, matrix = 48 * 24 * 4, bias = 48 * 4,
                     in_flight = overlap ? matrix : 0;
      EXPECT_LE(train(r).memory[0].peak(Category::buckets), tied + matrix + bias + in_flight)
          << name_of(engine);
    }
  }
}

TEST(Books, ShardsAreWithinAChunkOfAnEqualShare) {
  for (int ranks : {2, 3, 4}) {
    const Sizes sizes = tiny_sizes(
        training_of({EngineKind::zero1, ranks, 1, Accumulation::local_first, DType::f32}));
    for (uint64_t owned : sizes.owned) {
      const auto share = static_cast<int64_t>(sizes.phi) / ranks;
      EXPECT_LE(std::abs(static_cast<int64_t>(owned) - share), norm_chunk) << ranks;
    }
  }
}

}  // namespace
}  // namespace sg::dist::testing

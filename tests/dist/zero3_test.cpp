// ZeRO-3's own options: none changes a bit, and each keeps what it promises. Models that are
// created sharded.
#include <gtest/gtest.h>

#include "autograd/recompute.h"
#include "core/ops.h"
#include "tests/dist/tiny_model.h"
#include "tests/errors.h"

namespace sg::dist::testing {
namespace {

constexpr int64_t table_size = 131 * 24, block_size = 24 + 2 * 48 * 24 + 48 + 1500;

Training zero3(int ranks = 3, DType precision = DType::bf16) {
  Training r{{}, ranks, 3};
  r.options.engine = EngineKind::zero3;
  r.options.precision = precision;
  r.options.micro_steps = 2;
  r.options.accumulation = Accumulation::ranks_first;
  r.options.clip = 0.5;
  r.options.first_bucket_bytes = 2000;
  r.options.bucket_bytes = 6000;
  return r;
}
Outcome ddp(Training r) {
  r.options.engine = EngineKind::ddp;
  return train(r);
}

TEST(Zero3, ThresholdAndBudgetsDontChangeBits) {
  for (const bool tied : {true, false}) {
    Training r = zero3();
    r.tied = tied;
    const Outcome reference = ddp(r);
    for (const int64_t persistent : {0, 100, 1501, 100'000}) {
      for (const int64_t ahead : {int64_t{0}, table_size, int64_t{1} << 40}) {
        for (const int64_t live : {int64_t{0}, block_size, block_size + table_size - 1}) {
          for (const bool overlap : {true, false}) {
            r.options.persistent_elements = persistent;
            r.options.prefetch_elements = ahead;
            r.options.max_live_elements = live;
            r.options.overlap = overlap;
            EXPECT_TRUE(train(r) == reference)
                << fmt::format("below {} ahead {} live {} overlap {} tied {}",
                               persistent,
                               ahead,
                               live,
                               overlap,
                               tied);
          }
        }
      }
    }
  }
}

TEST(Zero3, LazyStreamsShowNoMissingWaitForPersistentParameters) {
  Training r = zero3(2, DType::f32);
  r.options.persistent_elements = 1501;
  const Outcome reference = ddp(r);
  for (uint64_t seed = 0; seed < 6; ++seed) {
    set_lazy_streams(true, seed);
    const bool equal = train(r) == reference;
    set_lazy_streams(false);
    EXPECT_TRUE(equal) << "seed " << seed;
  }
}

TEST(Zero3, NoMoreIsLiveThanAllowed) {
  Training r = zero3();
  r.options.max_live_elements = block_size;
  EXPECT_EQ(train(r).memory[0].peak(Category::live), 2 * static_cast<uint64_t>(block_size));
  r.options.max_live_elements = 0;  // any: the embedding is there while the block runs
  EXPECT_EQ(train(r).memory[0].peak(Category::live),
            2 * static_cast<uint64_t>(block_size + table_size));
  r.options.max_live_elements = block_size - 1;
  const std::string message = test::error_of(ErrorKind::usage, [&] { train(r); });
  EXPECT_NE(
      message.find(fmt::format(
          "block needs {} parameters at once, at most {} may be live", block_size, block_size - 1)),
      std::string::npos)
      << message;
}

// One step over two units of n² parameters in a region that backward computes again, nothing
// gathered ahead: how many gathers it takes. The largest number of elements live is noted.
uint64_t gathers_of_a_region(int64_t n, int64_t max_live, int64_t& most_live) {
  uint64_t gathers = 0;
  run_threads(2, [&](Comm& comm) {
    const auto unit = [&](const char* name, uint64_t op) {
      const Tensor value = random_normal({n, n}, {.seed = 7, .op = op}, 0, 0.2f);
      return Unit{name, {Variable(value, true, name)}};
    };
    const std::vector<Unit> units = {unit("u", 1), unit("v", 2)};
    const Options options{
        .engine = EngineKind::zero3, .prefetch_elements = 0, .max_live_elements = max_live};
    const auto engine = initialize(units, options, comm);
    const auto call = [](const Unit& unit, const Variable& x) {
      return call_unit(unit.hooks, [&] { return tanh(linear(x, unit.parameters[0])); });
    };
    const Variable x(random_uniform({2, n}, {.seed = 3, .op = 1}), true);
    const auto region = [&](const Variable& h) { return call(units[1], call(units[0], h)); };
    engine->backward(engine->forward([&] { return mean(recompute(region, x.detach())); }));
    engine->step();
    if (comm.rank() > 0)
      return;
    gathers = comm.traffic().of(Operation::all_gather, Phase::step).calls;
    const uint64_t bytes = pool(comm.device()).ledger().peak(Category::live);
    most_live = static_cast<int64_t>(bytes / sizeof(float));
  });
  return gathers;
}

TEST(Zero3, AUnitComputedAgainIsGatheredOnceForThatAndItsBackward) {
  constexpr int64_t n = 40;
  int64_t live = 0;
  EXPECT_EQ(gathers_of_a_region(n, 0, live), 4u) << "each for forward, and for the region";
  EXPECT_EQ(live, 2 * n * n);
  EXPECT_EQ(gathers_of_a_region(n, n * n, live), 5u) << "the first one makes room for the second";
  EXPECT_EQ(live, n * n);
}

TEST(Zero3, AParameterOnMetaWithoutAnInitialValueIsNamed) {
  const std::string message = test::error_of(ErrorKind::usage, [] {
    run_threads(1, [](Comm& comm) {
      const DeviceGuard guard(meta());
      const TinyModel model(true);
      initialize(model.units(), {.engine = EngineKind::zero3}, comm);
    });
  });
  EXPECT_NE(message.find("block.down lies on meta"), std::string::npos) << message;
}

}  // namespace
}  // namespace sg::dist::testing

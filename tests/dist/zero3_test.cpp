// ZeRO-3's own options: none changes a bit, and each keeps what it promises. Models that are
// created sharded.
#include <gtest/gtest.h>

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

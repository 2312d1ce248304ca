// Elastic determinism (level D3 of the numerics): the same bits for every number of ranks, also
// when it changes on the way; what it costs; what it refuses.
#include <gtest/gtest.h>

#include "core/ops.h"
#include "dist/checkpoint/checkpoint.h"
#include "dist/engines/flat_space.h"
#include "tests/core/temporary_folder.h"
#include "tests/dist/tiny_model.h"
#include "tests/errors.h"

namespace sg::dist::testing {
namespace {

constexpr EngineKind engines[] = {
    EngineKind::dp, EngineKind::ddp, EngineKind::zero1, EngineKind::zero2, EngineKind::zero3};

Training elastic(EngineKind engine, int ranks, int micro_batches, DType precision = DType::f32) {
  Training r{{}, ranks, 3};
  r.options.engine = engine;
  r.options.lr = 3e-3;
  r.options.precision = precision;
  r.options.micro_steps = micro_batches / ranks;
  r.options.clip = 0.5;
  r.options.first_bucket_bytes = 2000;
  r.options.bucket_bytes = 6000;
  r.options.loss_scale.initial_power = 10;
  r.options.elastic_determinism = true;
  r.rows = 8;
  r.dropout = 0.2f;
  return r;
}

std::string describe(const Training& r) {
  return fmt::format("{} N={} k={} {}",
                     name_of(r.options.engine),
                     r.ranks,
                     r.options.micro_steps,
                     name_of(r.options.precision));
}

TEST(Elastic, AnyNumberOfRanksHasTheSameBits) {
  for (const DType precision : {DType::f32, DType::bf16, DType::f16}) {
    const Outcome reference = train(elastic(EngineKind::ddp, 1, 8, precision));
    for (const EngineKind engine : engines) {
      for (const int ranks : {1, 2, 4, 8}) {
        const Training r = elastic(engine, ranks, 8, precision);
        EXPECT_TRUE(train(r) == reference) << describe(r);
      }
    }
  }
}

// Micro-steps whose number isn't a power of two: odd subtrees are carried up.
TEST(Elastic, AnyNumberOfMicroStepsHasTheSameBits) {
  for (const int micro_batches : {12, 20, 28}) {
    const Outcome reference = train(elastic(EngineKind::ddp, 1, micro_batches, DType::bf16));
    for (const int ranks : {2, 4}) {
      const Training r = elastic(
          ranks == 2 ? EngineKind::zero2 : EngineKind::zero3, ranks, micro_batches, DType::bf16);
      EXPECT_TRUE(train(r) == reference) << describe(r);
    }
  }
}

// A tree that leaves micro-steps out would leave the same ones out for every number of ranks.
TEST(Elastic, IsTheMeanOfAllMicroSteps) {
  for (const int micro_batches : {1, 2, 3, 5, 6, 7}) {
    Training r = elastic(EngineKind::ddp, 1, micro_batches);
    r.steps = 1;
    const double norm = train(r).norms[0];
    r.options.elastic_determinism = false;
    EXPECT_NEAR(norm, train(r).norms[0], 1e-5 * norm) << micro_batches;
  }
}

// Without it the number of ranks does change bits, or the two tests above would show nothing.
TEST(Elastic, IsNeededForThat) {
  const auto plain = [](int ranks) {
    Training r = elastic(EngineKind::ddp, ranks, 8, DType::bf16);
    r.options.elastic_determinism = false;
    return train(r);
  };
  EXPECT_FALSE(plain(1) == plain(4));
}

TEST(Elastic, TheNumberOfRanksMayChangeOnTheWay) {
  for (const DType precision : {DType::f32, DType::bf16, DType::f16}) {
    const Outcome uninterrupted = train(elastic(EngineKind::ddp, 1, 8, precision));
    const test::TemporaryFolder folder;
    Outcome all;
    const std::pair<EngineKind, int> stages[] = {
        {EngineKind::zero1, 4}, {EngineKind::zero3, 2}, {EngineKind::ddp, 8}};
    for (int step = 0; step < 3; ++step) {
      const auto& [engine, ranks] = stages[step];
      Training r = elastic(engine, ranks, 8, precision);
      r.first_step = step;
      r.steps = step + 1;
      const auto save = [&](Engine& e, int) {
        save_checkpoint(
            folder.path(),
            {.tag = fmt::format("step-{}", step), .state = e.scalars(), .entries = e.state()},
            ranks_of(e.comm()));
      };
      const auto load = [&](Engine& e) {
        if (r.first_step == 0)
          return;
        const CheckpointReader checkpoint(folder.path(), {}, ranks_of(e.comm()));
        checkpoint.read(e.state());
        e.restore(checkpoint.state());
      };
      const Outcome stage = train(r, save, load);
      all.loss_bits.push_back(stage.loss_bits.at(0));
      all.norms.push_back(stage.norms.at(0));
      all.state = stage.state;
    }
    EXPECT_TRUE(all == uninterrupted) << name_of(precision);
  }
}

TEST(Elastic, RefusesWhatWouldChangeBits) {
  const auto refused = [](const std::function<void(Training&)>& change, const std::string& part) {
    Training r = elastic(EngineKind::zero1, 2, 8);
    change(r);
    const std::string message = test::error_of(ErrorKind::usage, [&] { train(r); });
    EXPECT_NE(message.find("elastic determinism: "), std::string::npos) << message;
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  refused([](Training& r) { r.ranks = 3; }, "a power of two, not 3");
  refused([](Training& r) { r.options.reduction = Algorithm::ring; }, "ordered, not ring");
  refused([](Training& r) { r.options.reduction = Algorithm::native; }, "ordered, not native");
  refused([](Training& r) { r.options.accumulation = Accumulation::local_first; },
          "not local_first");
  refused([](Training& r) { r.options.zero1_all_reduce = true; }, "not all_reduce");
  refused([](Training& r) { r.options.communication = DType::bf16; },
          "in the precision, f32, not in bf16");
}

}  // namespace
}  // namespace sg::dist::testing

// Plans and `auto` for a model that isn't the zoo's: what a closure makes on a meta device.
#include "dist/plan.h"

#include <gtest/gtest.h>

#include "core/device.h"
#include "tests/dist/tiny_model.h"
#include "tests/errors.h"

namespace sg::dist::testing {
namespace {

constexpr int64_t rows = 24;

DryModel dry_tiny_model() {
  const auto model = std::make_shared<TinyModel>(true);
  const auto micro_step = [=](Engine& engine) {
    const Tensor tokens = random_ids(0, rows), targets = random_ids(1, rows);
    engine.backward(engine.forward([&] { return model->loss(tokens, targets); }));
    engine.step();
  };
  return {model->units(), micro_step};
}

Options options_of(EngineKind kind, int micro_steps) {
  Options options{.engine = kind, .micro_steps = micro_steps};
  options.bucket_bytes = 4096;
  options.accumulation = Accumulation::ranks_first;
  return options;
}

TEST(Plan, OfAnyModelEqualsItsRun) {
  for (const EngineKind kind :
       {EngineKind::ddp, EngineKind::zero1, EngineKind::zero2, EngineKind::zero3}) {
    for (const int micro_steps : {1, 3}) {
      const Options options = options_of(kind, micro_steps);
      const Training training{.options = options, .ranks = 2, .steps = 2, .rows = rows};
      const Outcome measured = train(training);
      for (int rank = 0; rank < 2; ++rank) {
        const DryGroup group{.ranks = 2, .threads = threads(cpu(rank))};
        const EnginePlan plan = plan_rank(dry_tiny_model, options, group, rank);
        for (int c = 0; c < category_count; ++c) {
          const auto category = static_cast<Category>(c);
          EXPECT_EQ(plan.memory.peak(category),
                    measured.memory[static_cast<size_t>(rank)].peak(category))
              << name_of(kind) << ", k = " << micro_steps << ", " << name_of(category);
        }
      }
    }
  }
}

TEST(Plan, AutoTakesTheFirstEngineThatFits) {
  const DryGroup group{.ranks = 2, .threads = threads(cpu(0))};
  const auto needed = [&](EngineKind kind) {
    return plan_engine(dry_tiny_model, options_of(kind, 2), group).memory.needed();
  };
  const uint64_t ddp = needed(EngineKind::ddp), zero1 = needed(EngineKind::zero1);
  ASSERT_LT(zero1, ddp);
  const std::pair<uint64_t, EngineKind> table[] = {
      {ddp, EngineKind::ddp}, {ddp - 1, EngineKind::zero1}, {zero1, EngineKind::zero1}};
  for (const auto& [room, fits] : table) {
    CommOptions on;
    on.ranks = 2;
    run_threads(on, [&](Comm& comm) {
      const TinyModel model(true);
      pool(comm.device()).set_capacity(room + pool(comm.device()).ledger().total());
      const Options options = options_of(EngineKind::automatic, 2);
      const auto rungs = choose_engine(dry_tiny_model, options, comm);
      EXPECT_EQ(rungs.back().engine, fits) << text_of(rungs.back());
      EXPECT_EQ(rungs.back().capacity, room);
      auto engine = initialize(model.units(), options, comm, dry_tiny_model);
      EXPECT_EQ(engine->options().engine, fits);
      const Tensor tokens = random_ids(0, rows), targets = random_ids(1, rows);
      engine->backward(engine->forward([&] { return model.loss(tokens, targets); }));
      engine->step();
      engine.reset();
      pool(comm.device()).set_capacity(Pool::unlimited);
    });
  }
}

TEST(Plan, AutoWithoutADryModelIsRefused) {
  run_threads(1, [](Comm& comm) {
    const TinyModel model(true);
    const std::string message = test::error_of(ErrorKind::usage, [&] {
      initialize(model.units(), {.engine = EngineKind::automatic}, comm);
    });
    EXPECT_NE(message.find("give initialize a closure"), std::string::npos) << message;
  });
}

}  // namespace
}  // namespace sg::dist::testing

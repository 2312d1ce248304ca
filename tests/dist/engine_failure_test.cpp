// What fails in a step drops the whole step (engine.h): exceptions at every hook and op of a model
// of two units, in forward and backward, in every engine. On all ranks alike the run then has ddp's
// undisturbed bits; on one rank alone every rank refuses to go on.
#include <gtest/gtest.h>

#include "core/ops.h"
#include "tests/dist/trapped_model.h"

namespace sg::dist::testing {
namespace {

constexpr EngineKind engines[] = {
    EngineKind::dp, EngineKind::ddp, EngineKind::zero1, EngineKind::zero2, EngineKind::zero3};
constexpr int steps_afterwards = 10;

struct Case {
  EngineKind engine = EngineKind::ddp;
  int ranks = 1;
  int k = 1;
  bool tied = false;
  Options options() const {
    const Accumulation order = tied ? Accumulation::ranks_first : Accumulation::local_first;
    Options o{.engine = engine, .lr = 0.05, .micro_steps = k, .accumulation = order};
    o.first_bucket_bytes = o.bucket_bytes = 1;  // a bucket for each parameter
    return o;
  }
  std::string describe() const {
    return fmt::format("{} N={} k={} tied={}", name_of(engine), ranks, k, tied);
  }
};

// One run of all ranks in which a trap springs on all of them at each point in turn, in each
// micro-step; the losses of its complete steps and, after them, of `more`. Untrapped: of these
// alone.
std::vector<float> train(const Case& c, bool trapped, int more) {
  std::vector<float> losses;
  run_threads(c.ranks, [&](Comm& comm) {
    Trap trap;
    TrappedModel model(trap, c.tied);
    auto engine = initialize(model.units(), c.options(), comm);
    model.trap_hooks();
    const auto note = [&](const StepResult& result) {
      if (result.complete && comm.rank() == 0)
        losses.push_back(result.loss);
    };
    bool sprung = trapped;
    for (int point = 1; sprung; ++point) {
      sprung = false;
      for (int micro_step = 0; micro_step < c.k; ++micro_step) {
        const int64_t step = engine->steps();
        const std::string caught =
            caught_in([&] { note(model.step(*engine, comm.rank(), micro_step, point)); });
        if (caught.empty())
          continue;
        sprung = true;
        EXPECT_EQ(caught.rfind("trap", 0), 0u)
            << c.describe() << " point " << point << ": " << caught;
        EXPECT_EQ(engine->steps(), step);
        for (const Category held : {Category::live, Category::buckets, Category::activations})
          EXPECT_EQ(pool(comm.device()).ledger().held(held), 0u) << c.describe() << " " << caught;
        note(model.step(*engine, comm.rank()));
      }
    }
    for (int step = 0; step < more; ++step)
      note(model.step(*engine, comm.rank()));
  });
  return losses;
}

TEST(EngineFailure, OnAllRanksAlikeLeavesNoTrace) {
  for (const int ranks : {1, 2, 3}) {
    for (const int k : {1, 2}) {
      for (const bool tied : {false, true}) {
        const std::vector<float> undisturbed = train({EngineKind::ddp, ranks, k, tied}, false, 150);
        for (const EngineKind engine : engines) {
          const Case c{engine, ranks, k, tied};
          const std::vector<float> losses = train(c, true, steps_afterwards);
          ASSERT_GT(losses.size(), 40u) << c.describe();
          ASSERT_LE(losses.size(), undisturbed.size()) << c.describe();
          EXPECT_TRUE(std::equal(losses.begin(), losses.end(), undisturbed.begin()))
              << c.describe();
        }
      }
    }
  }
}

// How each rank's run ended where one of them failed alone, caught that, and went on.
struct Ends {
  bool sprung = false;
  std::vector<std::string> messages;  // by rank
  std::vector<float> losses;
};

Ends fail_alone(const Case& c, int micro_step, int point) {
  Ends ends;
  ends.messages.resize(static_cast<size_t>(c.ranks));
  CommOptions options;
  options.ranks = c.ranks;
  options.timeout = 5;
  const auto rank_of = [](Comm& comm) { return static_cast<size_t>(comm.rank()); };
  const auto run = [&](Comm& comm) {
    Trap trap;
    TrappedModel model(trap, c.tied);
    auto engine = initialize(model.units(), c.options(), comm);
    model.trap_hooks();
    model.step(*engine, comm.rank());
    const bool mine = comm.rank() == c.ranks - 1;
    const std::string caught =
        caught_in([&] { model.step(*engine, comm.rank(), mine ? micro_step : -1, point); });
    if (mine && caught.rfind("trap", 0) == 0)
      ends.sprung = true;
    if (mine && !ends.sprung)
      throw std::runtime_error("there is no such point");
    std::string last = mine ? std::string() : caught;
    for (int again = 0; again < 2; ++again) {
      last = caught_in([&] {
        const StepResult result = model.step(*engine, comm.rank());
        if (result.complete)
          ends.losses.push_back(result.loss);
      });
    }
    ends.messages[rank_of(comm)] = last;
  };
  caught_in([&] { run_threads(options, run); });
  return ends;
}

TEST(EngineFailure, OnOneRankAloneIsRefusedByAll) {
  for (const EngineKind engine : engines) {
    for (const int ranks : {2, 3}) {
      for (const int k : {1, 2}) {
        const Case c{engine, ranks, k, ranks == 3};
        for (int micro_step = 0; micro_step < k; ++micro_step) {
          int points = 0;
          for (;; ++points) {
            const Ends ends = fail_alone(c, micro_step, points + 1);
            if (!ends.sprung)
              break;
            if (HasFailure())
              return;  // each may take as long as the time-out
            EXPECT_TRUE(ends.losses.empty())
                << c.describe() << " micro-step " << micro_step << " point " << points;
            for (const std::string& message : ends.messages)
              EXPECT_NE(message.find("this engine's group has failed"), std::string::npos)
                  << c.describe() << " micro-step " << micro_step << " point " << points << ": "
                  << message;
          }
          EXPECT_GT(points, 30) << c.describe();
        }
      }
    }
  }
}

}  // namespace
}  // namespace sg::dist::testing

// Failures that have a cause of their own: memory that ends, numbers that aren't finite, a loss
// without a gradient, a failure while parameters are gathered or outside of any step; and calls out
// of turn.
#include <gtest/gtest.h>

#include <limits>
#include <set>

#include "core/ops.h"
#include "tests/core/temporary_folder.h"
#include "tests/dist/trapped_model.h"
#include "tests/errors.h"

namespace sg::dist::testing {
namespace {

constexpr EngineKind engines[] = {
    EngineKind::dp, EngineKind::ddp, EngineKind::zero1, EngineKind::zero2, EngineKind::zero3};
constexpr int64_t width = TrappedModel::width;

// Something that fails on every rank before step 2 of a run; it is caught there.
using Failure = std::function<void(Engine& engine, TrappedModel& model, Comm& comm)>;

struct Course {
  EngineKind engine = EngineKind::ddp;
  int ranks = 2, k = 1;
  DType precision = DType::f32;
  std::string describe() const {
    return fmt::format("{} N={} k={} {}", name_of(engine), ranks, k, name_of(precision));
  }
};

std::vector<float> train(const Course& run, const Failure& failure = {}) {
  std::vector<float> losses;
  run_threads(run.ranks, [&](Comm& comm) {
    Trap trap;
    TrappedModel model(trap, true);
    Options o{.engine = run.engine,
              .lr = 0.05,
              .micro_steps = run.k,
              .accumulation = Accumulation::local_first,
              .precision = run.precision};
    o.first_bucket_bytes = o.bucket_bytes = 1;
    auto engine = initialize(model.units(), o, comm);
    for (int step = 0; step < 6; ++step) {
      if (failure && step == 2)
        failure(*engine, model, comm);
      const StepResult result = model.step(*engine, comm.rank());
      if (comm.rank() == 0)
        losses.push_back(result.loss);
    }
    EXPECT_EQ(pool(comm.device()).ledger().held(Category::live), 0u) << run.describe();
  });
  return losses;
}

void expect_no_trace(const Failure& failure, const std::vector<DType>& precisions = {DType::f32}) {
  for (const int k : {1, 2}) {
    for (const DType precision : precisions) {
      const std::vector<float> undisturbed = train({EngineKind::ddp, 2, k, precision});
      for (const EngineKind engine : engines) {
        const Course run{engine, 2, k, precision};
        EXPECT_EQ(train(run, failure), undisturbed) << run.describe();
      }
    }
  }
}

// From where nothing fits to where a whole pass does, which then fails at its last point.
TEST(EngineRecovery, FromMemoryThatEndsAnywhere) {
  constexpr int last_point = 19;
  for (const EngineKind engine : engines) {
    const Course run{engine, 1};
    const auto failure = [&](Engine& e, TrappedModel& model, Comm& comm) {
      Pool& memory = pool(comm.device());
      const uint64_t held = memory.ledger().total();
      std::set<std::string> met;  // what there was no memory for
      std::string caught;
      for (uint64_t room = 0; caught.rfind("trap", 0) != 0; room += 40) {
        memory.set_capacity(held + room);
        caught = caught_in([&] { model.step(e, comm.rank(), 0, last_point); });
        memory.set_capacity(Pool::unlimited);
        ASSERT_LT(room, 100'000u) << run.describe();
        EXPECT_EQ(memory.ledger().total(), held) << run.describe() << " " << caught;
        met.insert(caught.substr(0, caught.find(", holds")));
      }
      EXPECT_EQ(caught, "trap at first gradient hook of a") << run.describe();
      EXPECT_GE(met.size(), 3u) << run.describe();
    };
    EXPECT_EQ(train(run, failure), train({EngineKind::ddp, 1})) << run.describe();
  }
}

TEST(EngineRecovery, FromALossWithoutAGradient) {
  expect_no_trace([](Engine& e, TrappedModel& model, Comm&) {
    const Tensor x = full({2, width}, 100);
    const auto loss = [&] { return model.loss(x).detach(); };
    EXPECT_NE(caught_in([&] { e.backward(e.forward(loss)); }).find("no gradient path"),
              std::string::npos);
    EXPECT_NE(
        caught_in([&] { e.forward([] { return Variable(); }); }).find("must return one f32 loss"),
        std::string::npos);
  });
}

// The step isn't counted, so its data come again.
TEST(EngineRecovery, FromANumericStop) {
  expect_no_trace(
      [](Engine& e, TrappedModel& model, Comm& comm) {
        const int64_t step = e.steps();
        const Tensor x =
            cast(full({2, width}, std::numeric_limits<float>::infinity()), e.options().precision);
        const std::string message = test::error_of(ErrorKind::numeric, [&] {
          for (int j = 0; j < e.options().micro_steps; ++j) {
            e.backward(e.forward([&] { return model.loss(x); }));
            e.step();
          }
        });
        EXPECT_NE(message.find("step 2: the loss is"), std::string::npos) << message;
        EXPECT_EQ(e.steps(), step);
        (void)comm;
      },
      {DType::f32, DType::bf16});
}

TEST(EngineRecovery, ByLoadAfterAStopInAnyMicroStep) {
  for (const EngineKind engine : engines) {
    for (const int k : {1, 2}) {
      const test::TemporaryFolder folder;
      const auto failure = [&](Engine& e, TrappedModel& model, Comm& comm) {
        e.save(folder.path(), "before");
        model.step(e, comm.rank());
        for (int micro_step = 0; micro_step < k; ++micro_step) {
          EXPECT_EQ(caught_in([&] { model.step(e, comm.rank(), micro_step, 12); }).rfind("trap", 0),
                    0u);
          e.load(folder.path(), "before");
          EXPECT_EQ(e.steps(), 2);
        }
      };
      EXPECT_EQ(train({engine, 2, k}, failure), train({EngineKind::ddp, 2, k}))
          << name_of(engine) << " k=" << k;
    }
  }
}

TEST(EngineRecovery, FromAFailureBetweenSteps) {
  expect_no_trace([](Engine& e, TrappedModel& model, Comm& comm) {
    const NoGrad guard;
    for (const Unit& unit : model.units())
      EXPECT_EQ(caught_in([&] {
                  call_unit(unit.hooks, []() -> int { throw std::runtime_error("in evaluation"); });
                }),
                "in evaluation");
    // On one rank alone: what was changed before the failure is everybody's, here nothing.
    const std::string caught = caught_in([&] {
      e.gather(model.units()[0].parameters, [&] {
        if (comm.rank() == 1)
          throw std::runtime_error("while gathered");
      });
    });
    EXPECT_EQ(caught, comm.rank() == 1 ? "while gathered" : "");
  });
}

TEST(EngineRecovery, ACallOutOfTurnChangesNothing) {
  expect_no_trace([](Engine& e, TrappedModel& model, Comm& comm) {
    EXPECT_NE(caught_in([&] { e.step(); }), "");
    EXPECT_NE(caught_in([&] { e.backward(Variable(full({}, 1), true)); }), "");
    const Tensor x = full({2, width}, 1);
    const std::vector<std::function<void()>> within = {
        [&] { e.forward([&] { return model.loss(x); }); },
        [&] { e.state(); },
        [&] { e.gather(model.units()[0].parameters, [] {}); },
        [&] { initialize(model.units(), {}, comm); },
    };
    for (const auto& call : within) {
      EXPECT_NE(caught_in([&] {
                  e.forward([&] {
                    call();
                    return model.loss(x);
                  });
                }).find("a step is running"),
                std::string::npos);
    }
  });
}

// A parameter that is trained by this engine's passes alone.
TEST(EngineRecovery, APassOfTheProgramsOwnIsRefused) {
  expect_no_trace([](Engine&, TrappedModel& model, Comm&) {
    const Tensor x = full({2, width}, 1);
    const std::string caught = caught_in([&] {
      const Unit& first = model.units()[0];
      backward(
          call_unit(first.hooks, [&] { return mean(linear(Variable(x), first.parameters[0])); }));
    });
    EXPECT_NE(caught.find("a is an engine's parameter"), std::string::npos) << caught;
  });
}

}  // namespace
}  // namespace sg::dist::testing

// Faults while an engine trains: a value that isn't finite is told with its rank and parameter and
// never spreads; ranks whose models differ are told what differs; nothing stale survives.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/ops.h"
#include "tests/dist/tiny_model.h"

namespace sg::dist::testing {
namespace {

constexpr EngineKind engines[] = {
    EngineKind::dp, EngineKind::ddp, EngineKind::zero1, EngineKind::zero2, EngineKind::zero3};

// Element 7 of a parameter's gradient on one rank becomes `value` in the steps for which `when`
// holds.
struct Poison {
  const char* parameter = "block.up";
  float value = std::numeric_limits<float>::quiet_NaN();
  std::function<bool(int step)> when = [](int step) { return step == 1; };
  int rank = 1;
};

Variable parameter_of(const TinyModel& model, const std::string& name) {
  for (const Unit& unit : model.units())
    for (const Variable& p : unit.parameters)
      if (p.name() == name)
        return p;
  throw Bug("no parameter " + name);
}

struct Poisoned {
  std::vector<StepResult> results;  // by step
  std::vector<Outcome> after;       // each step: everything the optimizers hold
};

Poisoned train_poisoned(const Training& r, const Poison& poison) {
  Poisoned poisoned;
  poisoned.after.resize(static_cast<size_t>(r.steps));
  std::mutex mutex;
  CommOptions options;
  options.ranks = r.ranks;
  options.timeout = 60;
  run_threads(options, [&](Comm& comm) {
    const TinyModel model(r.tied);
    int step = 0;
    Variable p = parameter_of(model, poison.parameter);
    if (comm.rank() == poison.rank)
      p.on_gradient([&](const Variable& leaf) {
        if (poison.when(step))
          fill_(leaf.grad().flatten().slice(0, 7, 8), poison.value);
      });
    auto engine = initialize(model.units(), r.options, comm);
    for (; step < r.steps; ++step) {
      const auto number = static_cast<uint64_t>(step * r.ranks + comm.rank());
      const Tensor tokens = random_ids(2 * number, r.rows),
                   targets = random_ids(2 * number + 1, r.rows);
      engine->backward(engine->forward([&] { return model.loss(tokens, targets); }));
      const StepResult result = engine->step();
      collect(poisoned.after[static_cast<size_t>(step)], *engine, mutex);
      if (comm.rank() == 0)
        poisoned.results.push_back(result);
    }
  });
  return poisoned;
}

Training training_of(EngineKind engine) {
  Training r{{}, 3};
  r.options.engine = engine;
  r.options.first_bucket_bytes = 2000;
  r.options.bucket_bytes = 6000;
  return r;
}

void expect_message(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts)
    EXPECT_NE(text.find(part), std::string::npos) << part << " in: " << text;
}

// The error that a run ends with; its message must hold all of `parts`.
void expect_error(ErrorKind kind,
                  const std::vector<std::string>& parts,
                  const std::function<void()>& run) {
  try {
    run();
    ADD_FAILURE() << "no rank failed";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    expect_message(error.what(), parts);
  }
}

TEST(EngineFaults, AGradientThatIsntFiniteStopsTheRunWithRankAndParameter) {
  for (const EngineKind engine : engines) {
    for (const Algorithm algorithm : {Algorithm::ordered, Algorithm::ring}) {
      Training r = training_of(engine);
      r.options.reduction = algorithm;
      expect_error(ErrorKind::numeric,
                   {"step 1: the gradient of block.up isn't finite (element 7, rank 1)"},
                   [&] { train_poisoned(r, {}); });
    }
  }
}

TEST(EngineFaults, ASkippedStepChangesNothingAndTheRunGoesOn) {
  for (const EngineKind engine : engines) {
    Training r = training_of(engine);
    r.options.on_nonfinite = OnNonFinite::skip;
    const Poisoned run = train_poisoned(r, {.value = std::numeric_limits<float>::infinity()});
    EXPECT_FALSE(run.results[1].applied) << name_of(engine);
    expect_message(run.results[1].skipped, {"block.up", "rank 1"});
    EXPECT_EQ(run.after[1].state, run.after[0].state) << name_of(engine);
    EXPECT_TRUE(run.results[2].applied && std::isfinite(run.results[2].loss)) << name_of(engine);
    EXPECT_NE(run.after[2].state, run.after[1].state) << name_of(engine);
  }
}

TEST(EngineFaults, AllRanksSkipAnOverflowOfF16AndTheScaleFollowsItsAlgorithm) {
  for (const EngineKind engine : engines) {
    Training r = training_of(engine);
    r.steps = 5;
    r.options.precision = DType::f16;
    r.options.loss_scale = {.initial_power = 10, .hysteresis = 2};
    const Poisoned run =
        train_poisoned(r, {.when = [](int step) { return step == 1 || step == 2; }});
    std::vector<double> scales;
    for (const StepResult& result : run.results)
      scales.push_back(result.loss_scale);
    EXPECT_EQ(scales, (std::vector<double>{1024, 1024, 1024, 512, 512})) << name_of(engine);
    EXPECT_EQ(run.after[2].state, run.after[0].state) << name_of(engine);
    EXPECT_NE(run.after[3].state, run.after[2].state) << name_of(engine);
    expect_message(run.results[2].skipped, {"block.up", "rank 1"});
  }
}

// Gradients unscaled with the scale just updated would have half their norm after a growth, and
// half the step.
TEST(EngineFaults, TheStepAfterAGrowthHasRightGradients) {
  for (const EngineKind engine : engines) {
    const auto run = [&](optim::LossScaleOptions scale) {
      Training r = training_of(engine);
      r.steps = 5;
      r.options.precision = DType::f16;
      r.options.optimizer.type = "sgd";
      r.options.loss_scale = scale;
      return train_poisoned(r, {.when = [](int) { return false; }}).results;
    };
    const auto growing = run({.initial_power = 10, .window = 1}), fixed = run({.fixed = 1024});
    std::vector<double> scales;
    for (size_t i = 0; i < growing.size(); ++i) {
      scales.push_back(growing[i].loss_scale);
      EXPECT_NEAR(growing[i].norm, fixed[i].norm, 0.01 * fixed[i].norm)
          << name_of(engine) << " step " << i;
      EXPECT_NEAR(growing[i].loss, fixed[i].loss, 0.01 * fixed[i].loss)
          << name_of(engine) << " step " << i;
    }
    EXPECT_EQ(scales, (std::vector<double>{1024, 1024, 2048, 4096, 8192})) << name_of(engine);
  }
}

TEST(EngineFaults, AnOverflowAtTheSmallestScaleEndsTheRun) {
  Training r = training_of(EngineKind::zero2);
  r.steps = 10;
  r.options.precision = DType::f16;
  r.options.loss_scale = {.initial_power = 2, .hysteresis = 1};
  expect_error(ErrorKind::numeric, {"block.up", "rank 1"}, [&] {
    train_poisoned(r, {.when = [](int) { return true; }});
  });
}

TEST(EngineFaults, AGradientBeyondTheCommunicationTypeIsNamed) {
  for (const EngineKind engine : engines) {
    Training r = training_of(engine);
    r.options.communication = DType::f16;
    expect_error(ErrorKind::numeric,
                 {"step 1: the gradient of block.up isn't finite (element 7, rank 1)"},
                 [&] { train_poisoned(r, {.value = 1e6f}); });
  }
}

TEST(EngineFaults, ALossThatIsntFiniteIsNamed) {
  expect_error(ErrorKind::numeric, {"step 0: the loss is inf (rank 2, micro-batch 2)"}, [] {
    run_threads(3, [](Comm& comm) {
      const TinyModel model(true);
      auto engine = initialize(model.units(), {}, comm);
      const Tensor ids = random_ids(0, 8);
      const double factor = comm.rank() == 2 ? std::numeric_limits<double>::infinity() : 1;
      engine->backward(engine->forward([&] { return scale(model.loss(ids, ids), factor); }));
      engine->step();
    });
  });
}

TEST(EngineFaults, AParameterThatOnlyOneRankFreezesIsNamed) {
  expect_error(
      ErrorKind::peer,
      {"the name differs", "rank 0 makes call #", "\"setup.block.down\"", "rank 1 makes call #"},
      [] {
        run_threads(2, [](Comm& comm) {
          const TinyModel model(true);
          if (comm.rank() == 1)
            parameter_of(model, "block.down").set_requires_grad(false);
          initialize(model.units(), {}, comm);
        });
      });
}

// A unit that one rank calls once more would leave the others waiting for a gather.
TEST(EngineFaults, Zero3NamesAUnitThatOnlySomeRanksExecute) {
  expect_error(ErrorKind::peer, {"the name differs", "of block\"", "rank 1 makes call #"}, [] {
    run_threads(2, [](Comm& comm) {
      const TinyModel model(false);
      const std::vector<Unit> units = model.units();
      auto engine = initialize(units, {.engine = EngineKind::zero3}, comm);
      const Tensor ids = random_ids(0, 8);
      const auto skipping = [&] {
        const Variable x =
            call_unit(units[0].hooks, [&] { return embedding(units[0].parameters[0], ids); });
        return call_unit(units[2].hooks,
                         [&] { return classifier_loss(x, units[2].parameters[0], ids); });
      };
      const auto loss = comm.rank() == 0 ? engine->forward([&] { return model.loss(ids, ids); })
                                         : engine->forward(skipping);
      engine->backward(loss);
      engine->step();
    });
  });
}

// block.unused takes part in the loss of some ranks and steps only: all parameters after each step.
std::vector<Outcome> train_with_use(EngineKind engine,
                                    const std::function<bool(int rank, int step)>& used) {
  std::vector<Outcome> after(3);
  std::mutex mutex;
  run_threads(2, [&](Comm& comm) {
    const TinyModel model(true);
    Options options{.engine = engine, .lr = 1};
    options.optimizer.type = "sgd";
    options.optimizer.momentum = 0;
    options.optimizer.weight_decay = 0;
    options.first_bucket_bytes = options.bucket_bytes = 5000;
    auto trained = initialize(model.units(), options, comm);
    const Tensor ids = random_ids(0, 8), targets = random_ids(1, 8);
    for (int step = 0; step < 3; ++step) {
      trained->backward(
          trained->forward([&] { return model.loss(ids, targets, used(comm.rank(), step)); }));
      trained->step();
      collect(after[static_cast<size_t>(step)], *trained, mutex);
    }
  });
  return after;
}

TEST(EngineFaults, AParameterUnusedThisStepHasNoStaleGradient) {
  const std::vector<Outcome> never =
      train_with_use(EngineKind::ddp, [](int, int) { return false; });
  for (const EngineKind engine : engines) {
    const auto after = train_with_use(engine, [](int, int step) { return step == 0; });
    const auto unused = [&](size_t step) { return after[step].state.at("master/block.unused"); };
    EXPECT_NE(unused(0), never[0].state.at("master/block.unused")) << name_of(engine);
    EXPECT_EQ(unused(1), unused(0)) << name_of(engine);
    EXPECT_EQ(unused(2), unused(0)) << name_of(engine);
  }
}

TEST(EngineFaults, AParameterThatOnlySomeRanksUseCountsAsZeroOnTheOthers) {
  const auto on_rank_1 = [](int rank, int) { return rank == 1; };
  const std::vector<Outcome> ddp = train_with_use(EngineKind::ddp, on_rank_1);
  const std::vector<Outcome> never =
      train_with_use(EngineKind::ddp, [](int, int) { return false; });
  EXPECT_NE(ddp[0].state.at("master/block.unused"), never[0].state.at("master/block.unused"));
  for (const EngineKind engine : engines) {
    const std::vector<Outcome> after = train_with_use(engine, on_rank_1);
    for (size_t step = 0; step < 3; ++step)
      EXPECT_EQ(after[step].state, ddp[step].state) << name_of(engine);
  }
}

}  // namespace
}  // namespace sg::dist::testing

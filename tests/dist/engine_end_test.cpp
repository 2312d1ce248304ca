// The end of an engine, by destruction or because another one takes its parameters over: it touches
// only what is its own, returns every byte, and leaves a model that can be run.
#include <gtest/gtest.h>

#include "core/ops.h"
#include "tests/dist/trapped_model.h"
#include "tests/errors.h"

namespace sg::dist::testing {
namespace {

constexpr EngineKind engines[] = {
    EngineKind::dp, EngineKind::ddp, EngineKind::zero1, EngineKind::zero2, EngineKind::zero3};

Options options_of(EngineKind engine, DType precision = DType::f32) {
  Options o{.engine = engine, .lr = 0.05, .precision = precision, .persistent_elements = 0};
  o.first_bucket_bytes = o.bucket_bytes = 1;
  return o;
}

std::vector<float> train(TrappedModel& model, Engine& engine, int rank, int steps) {
  std::vector<float> losses;
  for (int i = 0; i < steps; ++i)
    losses.push_back(model.step(engine, rank).loss);
  return losses;
}

std::vector<float> values_of(const TrappedModel& model) {
  std::vector<float> all;
  for (const Unit& unit : model.units())
    for (const Variable& p : unit.parameters)
      for (float x : cast(p.tensor(), DType::f32).to_vector<float>())
        all.push_back(x);
  return all;
}

TEST(EngineEnd, LeavesAModelThatRunsWithTheLastStepsParameters) {
  for (const DType precision : {DType::f32, DType::bf16}) {
    std::vector<float> reference;
    for (const EngineKind engine : engines) {
      run_threads(3, [&](Comm& comm) {
        Trap trap;
        TrappedModel model(trap, true);
        auto trained = initialize(model.units(), options_of(engine, precision), comm);
        train(model, *trained, comm.rank(), 3);
        trained.reset();
        const std::vector<float> values = values_of(model);
        if (comm.rank() == 0 && engine == engines[0])
          reference = values;
        comm.barrier({"reference is there", Phase::check}).wait();
        EXPECT_EQ(values, reference) << name_of(engine) << " " << name_of(precision);
        const Tensor x = cast(full({2, TrappedModel::width}, 1), precision);
        EXPECT_TRUE(std::isfinite(model.loss(x).item())) << name_of(engine);
      });
    }
  }
}

// engine = initialize(…) over a live one: the old one's end must not touch the new one's.
TEST(EngineEnd, AnEngineOverALiveOneTakesItsParametersOver) {
  const auto train_two = [](EngineKind first, EngineKind second, bool reset_between) {
    std::vector<float> losses;
    run_threads(2, [&](Comm& comm) {
      Trap trap;
      TrappedModel model(trap, true);
      auto engine = initialize(model.units(), options_of(first), comm);
      std::vector<float> all = train(model, *engine, comm.rank(), 2);
      if (reset_between)
        engine.reset();
      engine = initialize(model.units(), options_of(second), comm);
      for (float loss : train(model, *engine, comm.rank(), 3))
        all.push_back(loss);
      if (comm.rank() == 0)
        losses = all;
    });
    return losses;
  };
  const std::vector<float> reference = train_two(EngineKind::ddp, EngineKind::ddp, true);
  for (const EngineKind first : engines)
    for (const EngineKind second : engines)
      EXPECT_EQ(train_two(first, second, false), reference)
          << name_of(first) << " " << name_of(second);
}

TEST(EngineEnd, AnEngineWhoseParametersWereTakenRefusesEveryCall) {
  for (const EngineKind kind : engines) {
    run_threads(2, [&](Comm& comm) {
      Trap trap;
      TrappedModel model(trap, false);
      auto old = initialize(model.units(), options_of(kind), comm);
      train(model, *old, comm.rank(), 1);
      auto engine = initialize(model.units(), options_of(EngineKind::zero3), comm);
      const std::vector<std::function<void()>> calls = {
          [&] { old->forward([&] {
                  return model.loss(zeros({2, TrappedModel::width}));
                }); },
          [&] { old->step(); },
          [&] { old->state(); },
          [&] { old->gather(model.units()[0].parameters, [] {}); },
          [&] { old->synchronize(); },
      };
      for (const auto& call : calls)
        EXPECT_NE(test::error_of(ErrorKind::usage, call).find("another engine was initialized"),
                  std::string::npos)
            << name_of(kind);
      old.reset();
      EXPECT_TRUE(std::isfinite(train(model, *engine, comm.rank(), 2)[1])) << name_of(kind);
    });
  }
}

TEST(EngineEnd, WhereParametersDontFitReadingOneSaysWhatToDo) {
  run_threads(2, [](Comm& comm) {
    Trap trap;
    TrappedModel model(trap, false);
    auto engine = initialize(model.units(), options_of(EngineKind::zero3), comm);
    train(model, *engine, comm.rank(), 1);
    if (comm.rank() == 1)
      pool(comm.device()).set_capacity(pool(comm.device()).ledger().total() + 100);
    engine.reset();  // rank 0 would have room
    pool(comm.device()).set_capacity(Pool::unlimited);
    const std::string message = test::error_of(ErrorKind::usage, [&] {
      model.loss(zeros({2, TrappedModel::width}));
    });
    EXPECT_NE(message.find("a: its value went with the engine"), std::string::npos) << message;
    EXPECT_NE(message.find("load a checkpoint"), std::string::npos) << message;
  });
}

// A rank that ends by an exception alone can't wait for its peers to give values back.
TEST(EngineEnd, AnExceptionThatEndsARankIsTheOneThatIsTold) {
  for (const EngineKind kind : engines) {
    CommOptions options;
    options.ranks = 2;
    options.timeout = 5;
    const std::string message = caught_in([&] {
      run_threads(options, [&](Comm& comm) {
        Trap trap;
        TrappedModel model(trap, false);
        auto engine = initialize(model.units(), options_of(kind), comm);
        train(model, *engine, comm.rank(), 1);
        if (comm.rank() == 1)
          throw std::runtime_error("the program's own failure");
        train(model, *engine, comm.rank(), 1);
      });
    });
    EXPECT_EQ(message, "the program's own failure") << name_of(kind);
  }
}

}  // namespace
}  // namespace sg::dist::testing

// Whole parameters for the program's own code: read on every rank, edited by rank 0, written back
// everywhere.
#include <gtest/gtest.h>

#include <limits>

#include "core/ops.h"
#include "tests/dist/tiny_model.h"
#include "tests/errors.h"

namespace sg::dist::testing {
namespace {

constexpr EngineKind engines[] = {
    EngineKind::dp, EngineKind::ddp, EngineKind::zero1, EngineKind::zero2, EngineKind::zero3};

struct Case {
  EngineKind engine = EngineKind::ddp;
  DType precision = DType::f32;
  int64_t persistent = 0;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const EngineKind engine : engines)
    for (const DType precision : {DType::f32, DType::bf16})
      all.push_back({engine, precision});
  all.push_back({EngineKind::zero3, DType::bf16, 1501});
  return all;
}

std::string describe(const Case& c) {
  return fmt::format("{} {} below {}", name_of(c.engine), name_of(c.precision), c.persistent);
}

std::vector<float> values(const Variable& p) {
  return cast(p.tensor(), DType::f32).to_vector<float>();
}

// A step, a gather of `names` with `use(rank, parameters)`, a step; what it all comes to.
using Use = std::function<void(int rank, const std::vector<Variable>& parameters)>;
struct Around {
  Outcome before, after, end;  // state before and after the gather, and after the second step
};
Around train_around(const Case& c, const std::vector<std::string>& names, const Use& use) {
  Around run;
  std::mutex mutex;
  run_threads(3, [&](Comm& comm) {
    const TinyModel model(true);
    std::vector<Variable> parameters;
    for (const Unit& unit : model.units())
      for (const Variable& p : unit.parameters)
        if (std::find(names.begin(), names.end(), p.name()) != names.end())
          parameters.push_back(p);
    auto engine = initialize(model.units(),
                             {.engine = c.engine,
                              .precision = c.precision,
                              .first_bucket_bytes = 2000,
                              .bucket_bytes = 6000,
                              .persistent_elements = c.persistent},
                             comm);
    const auto step = [&](uint64_t number) {
      const Tensor tokens = random_ids(number, 8), targets = random_ids(number + 1, 8);
      engine->backward(engine->forward([&] { return model.loss(tokens, targets); }));
      engine->step();
    };
    step(static_cast<uint64_t>(comm.rank()));
    collect(run.before, *engine, mutex);
    engine->gather(parameters, [&] { use(comm.rank(), parameters); });
    collect(run.after, *engine, mutex);
    step(10 + static_cast<uint64_t>(comm.rank()));
    collect(run.end, *engine, mutex);
    EXPECT_EQ(pool(comm.device()).ledger().held(Category::live), 0u) << describe(c);
  });
  return run;
}

TEST(Gather, ParametersAreWholeOnEveryRankAndReadingChangesNothing) {
  for (const Case& c : cases()) {
    std::mutex mutex;
    std::vector<std::vector<float>> seen;
    const Around run =
        train_around(c, {"table", "block.gain"}, [&](int, const std::vector<Variable>& parameters) {
          std::lock_guard lock(mutex);
          seen.push_back(values(parameters[0]));
        });
    std::vector<float> table = run.before.state.at("master/table");
    if (is_16bit(c.precision))
      table = cast(cast(from_vector(table), c.precision), DType::f32).to_vector<float>();
    ASSERT_EQ(seen.size(), 3u);
    for (const auto& values : seen)
      EXPECT_EQ(values, table) << describe(c);
    EXPECT_EQ(run.after.state, run.before.state) << describe(c);
  }
}

TEST(Gather, Rank0sEditsReachShardsAndMastersAndOthersAreLost) {
  const auto edit = [](int rank, const std::vector<Variable>& parameters) {
    for (const Variable& p : parameters)  // across shards of every rank
      fill_(p.tensor().flatten().slice(0, 5, p.numel() - 7), rank == 0 ? 0.5 : 99);
  };
  std::map<DType, Outcome> reference;
  for (const Case& c : cases()) {
    const Around run = train_around(c, {"table", "block.up", "block.gain"}, edit);
    for (const auto& [array, before] : run.before.state) {
      std::vector<float> expected = before;
      if (array == "master/table" || array == "master/block.up" || array == "master/block.gain")
        std::fill(expected.begin() + 5, expected.end() - 7, 0.5f);
      EXPECT_EQ(run.after.state.at(array), expected) << array << " " << describe(c);
    }
    const auto [known, first] = reference.try_emplace(c.precision, run.end);
    EXPECT_EQ(run.end.state, known->second.state) << describe(c);
    EXPECT_NE(run.end.state, run.after.state) << describe(c);
  }
}

TEST(Gather, FrozenParametersAreEditedToo) {
  for (const EngineKind engine : engines) {
    run_threads(2, [&](Comm& comm) {
      const TinyModel model(false);
      Variable frozen = model.units()[0].parameters[0];
      frozen.set_requires_grad(false);
      auto trained = initialize(model.units(), {.engine = engine, .precision = DType::bf16}, comm);
      trained->gather({{frozen}}, [&] { fill_(frozen.tensor(), comm.rank() == 0 ? 0.25 : 99); });
      EXPECT_EQ(values(frozen), std::vector<float>(static_cast<size_t>(frozen.numel()), 0.25f))
          << name_of(engine);
    });
  }
}

TEST(Gather, MisuseIsAUsageErrorAndAFailureInsideLetsGo) {
  for (const EngineKind engine : engines) {
    run_threads(1, [&](Comm& comm) {
      const TinyModel model(true);
      const std::vector<Variable> table = model.units()[0].parameters;
      auto trained = initialize(model.units(), {.engine = engine}, comm);
      const Variable stranger(zeros({3}), true, "stranger");
      const std::string message =
          test::error_of(ErrorKind::usage, [&] { trained->gather({{stranger}}, [] { FAIL(); }); });
      EXPECT_NE(message.find("stranger is no parameter of this engine"), std::string::npos)
          << message;
      EXPECT_THROW(trained->gather(table, [] { throw std::runtime_error("inside"); }),
                   std::runtime_error);
      EXPECT_EQ(pool(comm.device()).ledger().held(Category::live), 0u) << name_of(engine);
      const Tensor ids = random_ids(0, 4);
      trained->backward(trained->forward([&] { return model.loss(ids, ids); }));
      test::error_of(ErrorKind::usage, [&] { trained->gather(table, [] { FAIL(); }); });
      trained->step();
    });
  }
}

}  // namespace
}  // namespace sg::dist::testing

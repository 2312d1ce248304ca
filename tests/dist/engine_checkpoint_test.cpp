// Engines and their checkpoints: what is saved is everything, and any engine on any number of ranks
// takes it up exactly.
#include <gtest/gtest.h>

#include <filesystem>
#include <future>
#include <nlohmann/json.hpp>

#include "core/io/atomic_file.h"
#include "core/io/safetensors.h"
#include "core/ops.h"
#include "dist/checkpoint/checkpoint.h"
#include "tests/core/temporary_folder.h"
#include "tests/dist/tiny_model.h"
#include "tests/errors.h"

namespace sg::dist::testing {
namespace {

using test::TemporaryFolder;

constexpr EngineKind engines[] = {
    EngineKind::dp, EngineKind::ddp, EngineKind::zero1, EngineKind::zero2, EngineKind::zero3};
constexpr DType precisions[] = {DType::f32, DType::bf16, DType::f16};

// A leg of a run: loads, trains, saves.
struct Leg {
  EngineKind engine = EngineKind::ddp;
  int ranks = 2;
  DType precision = DType::f32;
  PartitionKind partition = PartitionKind::bucket;
  bool tied = true;
  std::string frozen{};  // a parameter
  int micro_steps = 1;
  std::string optimizer = "adamw";
  // Folders, and steps between the two.
  std::string from{}, to{};
  int steps = 0;
  bool asynchronous = false;  // two more steps are trained before the save may write
};

Options options_of(const Leg& leg) {
  Options options;
  options.engine = leg.engine;
  options.precision = leg.precision;
  options.partition = leg.partition;
  options.micro_steps = leg.micro_steps;
  options.accumulation = Accumulation::ranks_first;
  options.optimizer.type = leg.optimizer;
  options.loss_scale.initial_power = 10;
  options.loss_scale.window = 2;  // so that it has grown
  options.first_bucket_bytes = 2000;
  options.bucket_bytes = 6000;
  options.clip = 0.5;
  return options;
}

// Every parameter as a forward pass sees it, whole on each rank.
std::map<std::string, std::vector<float>> parameters_of(const TinyModel& model) {
  std::map<std::string, std::vector<float>> all;
  for (const Unit& unit : model.units())
    call_unit(unit.hooks, [&] {
      for (const Variable& p : unit.parameters)
        all[p.name()] = cast(p.tensor(), DType::f32).to_vector<float>();
      return true;
    });
  return all;
}

struct Result {
  Outcome outcome;
  std::map<std::string, std::vector<float>> parameters;
  std::string scalars;
  friend bool operator==(const Result& a, const Result& b) {
    return a.outcome.state == b.outcome.state && a.parameters == b.parameters &&
           a.scalars == b.scalars;
  }
};

// Holds back every write of a shard until it is released.
class HeldBack {
 public:
  HeldBack() {
    set_file_fault(
        [go = gone_.get_future().share()](std::string_view call, const std::string& path) {
          if (call == "write" && path.ends_with(".safetensors"))
            go.wait();
          return 0;
        });
  }
  ~HeldBack() { set_file_fault({}); }
  void release() { gone_.set_value(); }

 private:
  std::promise<void> gone_;
};

// Saves while two more steps are trained.
void save_beside(const Leg& leg,
                 Engine& engine,
                 const std::function<void(int)>& train,
                 HeldBack& held) {
  AsyncSaver saver(engine.state(), ranks_of(engine.comm()));
  saver.start(leg.to, checkpoint_of(engine));
  for (int i = 0; i < 2; ++i) {
    train(1);
    EXPECT_FALSE(saver.poll());
  }
  if (engine.comm().rank() == 0)
    held.release();
  saver.wait();
  EXPECT_TRUE(saver.poll()) << "it is over";
}

// One rank's part of a leg. What is loaded must come from the checkpoint: the model starts from
// other values then.
void take_part(const Leg& leg, Comm& comm, HeldBack* held, Result& result, std::mutex& mutex) {
  const TinyModel model(leg.tied);
  for (const Unit& unit : model.units())
    for (Variable p : unit.parameters) {
      if (!leg.from.empty())
        fill_(p.tensor(), 0.5);
      if (p.name() == leg.frozen)
        p.set_requires_grad(false);
    }
  auto engine = initialize(model.units(), options_of(leg), comm);
  if (!leg.from.empty())
    engine->load(leg.from);
  const auto train = [&](int steps) {
    for (int64_t last = engine->steps() + steps; engine->steps() < last;) {
      const int64_t first = engine->steps() * leg.micro_steps;
      for (int j = 0; j < leg.micro_steps; ++j) {
        const auto number = static_cast<uint64_t>((first + j) * leg.ranks + comm.rank());
        const Tensor tokens = random_ids(2 * number, 24), targets = random_ids(2 * number + 1, 24);
        engine->backward(engine->forward([&] { return model.loss(tokens, targets); }));
        engine->step();
      }
    }
  };
  train(leg.steps);
  if (held)
    save_beside(leg, *engine, train, *held);
  else if (!leg.to.empty())
    engine->save(leg.to);
  collect(result.outcome, *engine, mutex);
  const auto parameters = parameters_of(model);
  std::lock_guard lock(mutex);
  EXPECT_TRUE(result.parameters.empty() || result.parameters == parameters) << "ranks differ";
  result.parameters = parameters;
  result.scalars = engine->scalars();
}

Result go(const Leg& leg) {
  Result result;
  std::mutex mutex;
  CommOptions options;
  options.ranks = leg.ranks;
  options.timeout = 60;
  const auto held = leg.asynchronous ? std::make_unique<HeldBack>() : nullptr;
  run_threads(options, [&](Comm& comm) { take_part(leg, comm, held.get(), result, mutex); });
  return result;
}

std::string describe(const Leg& leg) {
  return fmt::format("{} on {}, {}, {}",
                     name_of(leg.engine),
                     leg.ranks,
                     name_of(leg.precision),
                     name_of(leg.partition));
}

TEST(EngineCheckpoint, GoesOnWithTheBitsOfTheRunThatSavedIt) {
  for (const EngineKind engine : engines)
    for (const DType precision : precisions) {
      const TemporaryFolder folder;
      Leg leg{.engine = engine, .precision = precision};
      leg.micro_steps = engine == EngineKind::ddp || engine == EngineKind::zero2 ? 2 : 1;
      leg.steps = 5;
      const Result whole = go(leg);
      leg.steps = 3, leg.to = folder.path();
      go(leg);
      leg.steps = 2, leg.from = leg.to, leg.to = {};
      EXPECT_TRUE(go(leg) == whole) << describe(leg);
    }
}

// Right after loading, everything is equal; and back where it began, training goes on as if nothing
// had happened.
TEST(EngineCheckpoint, AnyEnginePartitionAndWorldTakesUpTheStateExactly) {
  const std::vector<Leg> chain = {{EngineKind::zero3, 4},
                                  {EngineKind::zero1, 3},
                                  {EngineKind::zero3, 3, {}, PartitionKind::contiguous},
                                  {EngineKind::dp, 2},
                                  {EngineKind::zero2, 4, {}, PartitionKind::contiguous},
                                  {EngineKind::zero2, 1},
                                  {EngineKind::zero1, 2, {}, PartitionKind::contiguous},
                                  {EngineKind::none, 1}};
  for (const DType precision : precisions) {
    Leg ddp{.engine = EngineKind::ddp,
            .ranks = 2,
            .precision = precision,
            .frozen = "block.down",
            .steps = 5};
    const Result whole = go(ddp);
    const TemporaryFolder folder;
    std::string from = ddp.to = folder / "0";
    ddp.steps = 3;
    const Result saved = go(ddp);
    for (size_t i = 0; i < chain.size(); ++i) {
      Leg leg = chain[i];
      leg.precision = precision, leg.frozen = ddp.frozen;
      leg.from = from, leg.to = from = folder / std::to_string(i + 1);
      EXPECT_TRUE(go(leg) == saved) << describe(leg);
    }
    ddp.from = from, ddp.to = {}, ddp.steps = 2;
    EXPECT_TRUE(go(ddp) == whole) << name_of(precision);
  }
}

// Parameters whose `kind` is saved, and how many bytes all shards hold of it.
std::pair<std::vector<std::string>, uint64_t> saved_of(const std::string& folder,
                                                       const std::string& kind) {
  std::vector<std::string> names;
  uint64_t bytes = 0;
  const CheckpointReader reader(folder);
  for (const auto& [name, shape] : reader.parameters(kind))
    names.push_back(name);
  for (const auto& file : std::filesystem::directory_iterator(reader.path())) {
    if (file.path().extension() != ".safetensors")
      continue;
    const SafetensorsReader shard(file.path().string());
    for (const auto& entry : shard.entries())
      bytes += entry.name.rfind(kind, 0) == 0 ? entry.end - entry.begin : 0;
  }
  return {names, bytes};
}

TEST(EngineCheckpoint, FrozenParametersAreNotLostOnSave) {
  for (const EngineKind engine : engines)
    for (const DType precision : {DType::f32, DType::bf16}) {
      const TemporaryFolder folder;
      Leg leg{.engine = engine,
              .ranks = 3,
              .precision = precision,
              .frozen = "block.up",
              .to = folder.path()};
      leg.steps = 1;
      const Result saved = go(leg);
      leg.from = leg.to, leg.to = {}, leg.steps = 0;
      EXPECT_TRUE(go(leg) == saved) << describe(leg);
      const auto [names, bytes] = saved_of(folder.path(), "frozen");
      EXPECT_EQ(names, std::vector<std::string>{"block.up"});
      EXPECT_EQ(bytes, 48 * 24 * size_of(precision)) << describe(leg) << ": saved more than once";
    }
}

TEST(EngineCheckpoint, TiedParametersAreSavedOnceAndTiedAgain) {
  for (const EngineKind engine : engines) {
    const TemporaryFolder folder;
    Leg leg{.engine = engine, .to = folder.path(), .steps = 2};
    const Result saved = go(leg);
    const auto [names, bytes] = saved_of(folder.path(), "master");
    EXPECT_EQ(std::count(names.begin(), names.end(), "table"), 1);
    EXPECT_EQ(std::count(names.begin(), names.end(), "head.weight"), 0);
    leg.from = leg.to, leg.to = {}, leg.steps = 0;
    EXPECT_TRUE(go(leg) == saved) << name_of(engine);
  }
}

struct Refusal {
  const char* what;
  Leg saved, loading;
  const char* message;
};

TEST(EngineCheckpoint, WhatIsntThisModelsOrOptimizersIsRefusedByAllRanks) {
  Leg tied, untied, sgd, f16, frozen, frozen_16bit;
  untied.tied = false;
  sgd.optimizer = "sgd";
  f16.precision = DType::f16;
  frozen.frozen = frozen_16bit.frozen = "block.up";
  frozen_16bit.precision = DType::bf16;
  const Refusal refusals[] = {
      {"a tied one", tied, untied, "holds no master of head.weight"},
      {"an untied one", untied, tied, "holds a master of head.weight, which has none here"},
      {"another optimizer's", tied, sgd, "holds no momentum of"},
      {"a loss scale too many", f16, tied, "there is no loss_scaler here"},
      {"a loss scale too few", tied, f16, "there is no loss_scaler there"},
      {"one whose parameter trains", tied, frozen, "block.up is trained there and frozen here"},
      {"one whose parameter is frozen", frozen, tied, "block.up is frozen there and trained here"},
      {"a frozen one's precision", frozen, frozen_16bit, "frozen of block.up is f32 there"}};
  for (Refusal refusal : refusals) {
    const TemporaryFolder folder;
    refusal.saved.to = refusal.loading.from = folder.path();
    refusal.loading.engine = EngineKind::zero3;
    go(refusal.saved);
    const std::string error = test::error_of(ErrorKind::bad_input, [&] { go(refusal.loading); });
    EXPECT_NE(error.find(refusal.message), std::string::npos) << refusal.what << ": " << error;
  }
}

// Every file of a checkpoint, by name.
std::map<std::string, std::string> files_of(const std::string& checkpoint) {
  std::map<std::string, std::string> files;
  for (const auto& file : std::filesystem::directory_iterator(checkpoint))
    files[file.path().filename()] = test::contents_of(file.path());
  return files;
}

// Training goes on, and changes everything, while the save is under way; a thread's write is held
// back until then.
TEST(EngineCheckpoint, AnAsynchronousSaveWritesTheBytesOfASynchronousOne) {
  for (const EngineKind engine : engines)
    for (const DType precision : {DType::f32, DType::bf16}) {
      const TemporaryFolder plain, beside;
      Leg leg{.engine = engine,
              .precision = precision,
              .frozen = "block.up",
              .to = plain.path(),
              .steps = 2};
      go(leg);
      leg.to = beside.path(), leg.asynchronous = true;
      go(leg);
      EXPECT_EQ(files_of(plain / "step-000002"), files_of(beside / "step-000002")) << describe(leg);
      EXPECT_EQ(beside.names(), plain.names());
      EXPECT_EQ(pool(host).ledger().total(), 0u) << "the copies are given back";
    }
}

TEST(EngineCheckpoint, TheCopiesOfAnAsynchronousSaveAreBookedInHostMemory) {
  const TemporaryFolder folder;
  constexpr uint64_t parameters = 131 * 24 + 24 + 48 * 24 + 48 + 1500 + 24 * 48;
  for (const EngineKind engine : {EngineKind::ddp, EngineKind::zero3}) {
    pool(host).reset_peaks();
    go({.engine = engine,
        .precision = DType::bf16,
        .to = folder.path(),
        .steps = 1,
        .asynchronous = true});
    EXPECT_EQ(pool(host).ledger().peak(Category::optimizer), 12 * parameters)
        << "of both ranks, each once";
  }
}

TEST(EngineCheckpoint, WithinAStepNothingIsSavedOrLoaded) {
  const TemporaryFolder folder;
  run_threads(1, [&](Comm& comm) {
    const TinyModel model(true);
    Leg leg;
    leg.micro_steps = 2;
    auto engine = initialize(model.units(), options_of(leg), comm);
    const Tensor ids = random_ids(0, 4);
    engine->save(folder.path(), "start");
    const Variable loss = engine->forward([&] { return model.loss(ids, ids); });
    test::error_of(ErrorKind::usage, [&] { engine->save(folder.path()); });
    engine->backward(loss);
    test::error_of(ErrorKind::usage, [&] { engine->load(folder.path()); });
    engine->step();
    EXPECT_NE(test::error_of(ErrorKind::usage, [&] { engine->save(folder.path()); })
                  .find("1 of 2 micro-steps"),
              std::string::npos);
  });
  EXPECT_EQ(folder.names(), (std::vector<std::string>{"latest", "start"}));
}

}  // namespace
}  // namespace sg::dist::testing

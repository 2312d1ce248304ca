// The engine never changes the bits (level D2 of the numerics), and the books equal the formulas.
#include <gtest/gtest.h>

#include <set>

#include "tests/dist/tiny_model.h"
#include "tests/errors.h"

namespace sg::dist::testing {
namespace {

constexpr EngineKind engines[] = {
    EngineKind::dp, EngineKind::ddp, EngineKind::zero1, EngineKind::zero2, EngineKind::zero3};

Options base_options() {
  Options options;
  options.lr = 3e-3;
  options.first_bucket_bytes = 2000;
  options.bucket_bytes = 6000;
  return options;
}

std::string describe(const Training& r) {
  const Options& o = r.options;
  return fmt::format(
      "{} N={} {} over {} k={} {} clip={} overlap={} {} tied={} bucket={} prescale={} predivide={}",
      name_of(o.engine),
      r.ranks,
      name_of(o.precision),
      name_of(o.communication.value_or(o.precision)),
      o.micro_steps,
      name_of(o.accumulation),
      o.clip,
      o.overlap,
      name_of(o.partition),
      r.tied,
      o.bucket_bytes,
      o.prescale_gradients,
      o.predivide);
}

// Everything bits may depend on, for N ranks; each engine is held against ddp there.
std::vector<Training> numerics(int ranks, bool full) {
  std::vector<Training> runs;
  for (DType precision : {DType::f32, DType::bf16, DType::f16}) {
    for (int k : {1, 4}) {
      for (Accumulation order : {Accumulation::local_first, Accumulation::ranks_first}) {
        for (double clip : {0.0, 0.5}) {
          for (bool tied : {true, false}) {
            if (k == 1 && order == Accumulation::ranks_first)
              continue;
            if (!full && (clip > 0) != tied)
              continue;  // pairwise
            Training r{base_options(), ranks, 3, tied};
            r.options.precision = precision;
            r.options.micro_steps = k;
            r.options.accumulation = order;
            r.options.clip = clip;
            r.options.loss_scale.initial_power = 10;
            runs.push_back(r);
          }
        }
      }
    }
  }
  for (DType precision : {DType::f32, DType::bf16, DType::f16}) {
    for (DType communication : {DType::f32, DType::bf16, DType::f16}) {
      if (communication == precision)
        continue;
      const bool local = (communication == DType::f32) == (precision == DType::f16);
      Training r{base_options(), ranks};
      r.options.precision = precision;
      r.options.communication = communication;
      r.options.micro_steps = ranks == 3 ? 1 : 2;
      r.options.accumulation = local ? Accumulation::local_first : Accumulation::ranks_first;
      r.options.loss_scale.initial_power = 6;
      runs.push_back(r);
    }
    for (bool prescale : {true, false}) {
      Training r{base_options(), ranks};
      r.options.precision = precision;
      r.options.micro_steps = 2;
      r.options.accumulation = prescale ? Accumulation::local_first : Accumulation::ranks_first;
      r.options.prescale_gradients = prescale;
      r.options.predivide = prescale ? 1 : 1.7;
      r.options.loss_scale.initial_power = 10;
      runs.push_back(r);
    }
  }
  return runs;
}

class EveryEngine : public ::testing::TestWithParam<int> {};

TEST_P(EveryEngine, HasDdpsBits) {
  const int ranks = GetParam();
  for (Training r : numerics(ranks, ranks == 2)) {
    r.options.engine = EngineKind::ddp;
    const Outcome reference = train(r);
    for (EngineKind engine : engines) {
      for (PartitionKind partition : {PartitionKind::bucket, PartitionKind::contiguous}) {
        for (bool overlap : {true, false}) {
          if (ranks != 2 && overlap == (partition == PartitionKind::contiguous))
            continue;
          r.options.engine = engine;
          r.options.partition = partition;
          r.options.overlap = overlap;
          EXPECT_TRUE(train(r) == reference) << describe(r);
        }
      }
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Ranks, EveryEngine, ::testing::Values(1, 2, 3, 4));

// A power of two divides exactly, so that it shows neither where nor in how many parts.
TEST(Engine, TheMeanMayBeDividedForAtTheLoss) {
  for (int ranks : {2, 4}) {
    Training r{base_options(), ranks};
    r.options.micro_steps = 2;
    const Outcome reference = train(r);
    for (double factor : {2.0, 4.0}) {
      r.options.predivide = factor;
      EXPECT_TRUE(train(r) == reference) << describe(r);
    }
    r.options.predivide = 1;
    r.options.prescale_gradients = true;
    EXPECT_TRUE(train(r) == reference) << describe(r);
    r.options.prescale_gradients = false;
    r.options.predivide = 1.7;
    const Outcome other = train(r);
    EXPECT_FALSE(other == reference) << "it isn't exact, so bits must show it";
    EXPECT_NEAR(other.norms.at(0), reference.norms.at(0), 1e-5 * reference.norms.at(0));
  }
}

// A run in f32 whose gradients cross in bf16 differs from both others, but little from f32; one in
// bf16 whose micro-steps add up before they cross is rounded once less in f32.
TEST(Engine, TheCommunicationTypeRounds) {
  Training r{base_options(), 2};
  const auto run = [&](DType precision, std::optional<DType> communication) {
    r.options.precision = precision;
    r.options.communication = communication;
    return train(r);
  };
  const Outcome f32 = run(DType::f32, {}), narrow = run(DType::f32, DType::bf16),
                bf16 = run(DType::bf16, {});
  EXPECT_TRUE(run(DType::f32, DType::f32) == f32);
  EXPECT_FALSE(narrow == f32);
  EXPECT_EQ(narrow.loss_bits.at(0), f32.loss_bits.at(0))
      << "the first loss comes before any communication";
  EXPECT_NEAR(narrow.norms.at(0), f32.norms.at(0), 1e-2 * f32.norms.at(0));
  r.options.micro_steps = 3;
  r.options.accumulation = Accumulation::local_first;
  EXPECT_FALSE(run(DType::bf16, DType::f32) == run(DType::bf16, {}));
}

TEST(Engine, Zero1sAllReduceHasTheSameBitsInAnyCommunicationType) {
  for (DType communication : {DType::f32, DType::bf16}) {
    for (DType precision : {DType::f32, DType::bf16}) {
      Training r{base_options(), 3};
      r.options.engine = EngineKind::zero1;
      r.options.precision = precision;
      r.options.communication = communication;
      const Outcome scattered = train(r);
      r.options.zero1_all_reduce = true;
      EXPECT_TRUE(train(r) == scattered) << describe(r);
    }
  }
}

TEST(Engine, OneDivisionAtMostIsAskedFor) {
  const auto refused = [](const Options& options) {
    return test::error_of(ErrorKind::usage, [&] { train({options, 2}); });
  };
  EXPECT_NE(refused({.prescale_gradients = true, .predivide = 2}).find("factor of 2 has no place"),
            std::string::npos);
  EXPECT_NE(refused({.predivide = -1}).find("predivide must be a number above 0, not -1"),
            std::string::npos);
  EXPECT_NE(refused({.predivide = 2, .elastic_determinism = true}).find("elastic determinism"),
            std::string::npos);
  EXPECT_NE(refused({.prescale_gradients = true, .elastic_determinism = true}).find("elastic"),
            std::string::npos);
}

TEST(Engine, BucketSizesDontChangeBits) {
  for (EngineKind engine : engines) {
    Training r{base_options(), 3};
    r.options.engine = engine;
    r.options.clip = 1;
    const Outcome reference = train(r);
    for (int64_t bytes : {1, 5000, 1 << 30}) {
      r.options.bucket_bytes = r.options.first_bucket_bytes = bytes;
      EXPECT_TRUE(train(r) == reference) << describe(r);
    }
  }
}

TEST(Engine, TheLearningRateIsTheOneSetLast) {
  for (const EngineKind kind : {EngineKind::ddp, EngineKind::zero1, EngineKind::zero3}) {
    Training run{.options = {.engine = kind, .lr = 0.1}, .ranks = 2, .steps = 1};
    run.options.optimizer = {.type = "sgd"};
    const auto stopped_after = [&](int steps) {
      run.steps = steps;
      return train(run, [](Engine& engine, int) { engine.set_learning_rate(0); })
          .state.at("master/table");
    };
    EXPECT_EQ(stopped_after(3), stopped_after(1)) << name_of(kind);
    run.options.lr = 0.2;
    EXPECT_NE(stopped_after(1),
              train({.options = {.engine = kind, .lr = 0}, .ranks = 2}).state.at("master/table"));
  }
}

TEST(Engine, NoneIsDdpOnOneRank) {
  Training r{base_options(), 1};
  r.options.engine = EngineKind::ddp;
  const Outcome reference = train(r);
  r.options.engine = EngineKind::none;
  EXPECT_TRUE(train(r) == reference);
}

TEST(Engine, EveryOptimizerHasDdpsBits) {
  for (const char* type : {"adam", "sgd", "lion"}) {
    Training r{base_options(), 2};
    r.options.optimizer.type = type;
    r.options.engine = EngineKind::ddp;
    const Outcome reference = train(r);
    r.options.engine = EngineKind::zero3;
    EXPECT_TRUE(train(r) == reference) << type;
  }
}

TEST(Engine, LazyStreamsShowNoMissingWait) {
  for (EngineKind engine : engines) {
    Training r{base_options(), 2};
    r.options.engine = engine;
    const Outcome reference = train(r);
    for (uint64_t seed = 0; seed < 6; ++seed) {
      set_lazy_streams(true, seed);
      const bool equal = train(r) == reference;
      set_lazy_streams(false);
      EXPECT_TRUE(equal) << describe(r) << " seed " << seed;
    }
  }
}

// What an engine with these options has left behind on its device, while its model still lives and
// after that.
void expect_nothing_left(const Options& options, bool within_a_step) {
  run_threads(2, [&](Comm& comm) {
    const std::string what = fmt::format("{} {} k={} elastic={} within a step={}",
                                         name_of(options.engine),
                                         name_of(options.precision),
                                         options.micro_steps,
                                         options.elastic_determinism,
                                         within_a_step);
    auto model = std::make_unique<TinyModel>(true);
    auto engine = initialize(model->units(), options, comm);
    for (int j = 0; j < options.micro_steps - within_a_step; ++j) {
      const Tensor ids = random_ids(static_cast<uint64_t>(j), 8);
      engine->backward(engine->forward([&] { return model->loss(ids, ids); }));
      engine->step();
    }
    engine.reset();
    comm.stream().synchronize();  // calls under way keep their tensors
    for (const Category c : {Category::gradients,
                             Category::optimizer,
                             Category::accumulation,
                             Category::buckets,
                             Category::live,
                             Category::communication,
                             Category::workspace})
      EXPECT_EQ(pool(comm.device()).ledger().held(c), 0u) << what << " " << name_of(c);
    model.reset();
    EXPECT_EQ(pool(comm.device()).ledger().total(), 0u) << what;
  });
}

TEST(Engine, DestructionReturnsEveryByte) {
  for (const EngineKind engine : engines) {
    for (const DType precision : {DType::f32, DType::bf16}) {
      for (const bool within_a_step : {false, true}) {
        Options options = base_options();
        options.engine = engine;
        options.precision = precision;
        options.micro_steps = 3;
        expect_nothing_left(options, within_a_step);
        options.accumulation = Accumulation::ranks_first;
        expect_nothing_left(options, within_a_step);
        options.elastic_determinism = true;
        options.persistent_elements = 100;
        expect_nothing_left(options, within_a_step);
      }
    }
  }
}

// However the model's own tensors lie, and whatever of it is frozen.
TEST(Engine, StridedAndFrozenParametersHaveDdpsBits) {
  for (const char* frozen : {"", "table", "block.gain", "head.weight"}) {
    for (const DType precision : {DType::f32, DType::bf16}) {
      Training r{base_options(), 3};
      r.tied = false;
      r.frozen = frozen;
      r.options.precision = precision;
      r.options.clip = 0.5;
      r.options.engine = EngineKind::ddp;
      const Outcome reference = train(r);
      r.strided = true;
      for (const EngineKind engine : engines) {
        r.options.engine = engine;
        EXPECT_TRUE(train(r) == reference) << describe(r) << " frozen " << frozen;
      }
    }
  }
}

TEST(Engine, PatternsFreezeWhatTheyNameAndNothingElse) {
  run_threads(1, [](Comm& comm) {
    const auto frozen_by = [&](const std::string& patterns) {
      const TinyModel model(false);
      initialize(model.units(), {.freeze = patterns}, comm);
      std::set<std::string> names;
      for (const Unit& unit : model.units())
        for (const Variable& p : unit.parameters)
          if (!p.requires_grad())
            names.insert(p.name());
      return names;
    };
    using Names = std::set<std::string>;
    EXPECT_EQ(frozen_by(""), Names());
    EXPECT_EQ(frozen_by("block.up"), Names{"block.up"});
    EXPECT_EQ(frozen_by("block.[u-w]?,table"), (Names{"block.up", "table"}));
    EXPECT_EQ(frozen_by("*.weight"), Names{"head.weight"});
    for (const char* none : {"block", "blok*", ",block.up", "block.[", "Block.*", "*.weight,up"})
      EXPECT_NE(test::error_of(ErrorKind::usage, [&] { frozen_by(none); })
                    .find("names no parameter of this model"),
                std::string::npos)
          << none;
    EXPECT_NE(
        test::error_of(ErrorKind::usage, [&] { frozen_by("*"); }).find("no trainable parameters"),
        std::string::npos);
  });
}

// The classifier makes its gradients in forward, in the engine's memory; what no backward asks for
// doesn't count.
TEST(Engine, AForwardWithoutBackwardLeavesNoTrace) {
  for (const EngineKind engine : engines) {
    for (const bool tied : {true, false}) {
      Training r{base_options(), 2};
      r.options.engine = engine;
      r.options.micro_steps = 2;
      r.tied = tied;
      const Outcome reference = train(r);
      r.forwards = 2;
      EXPECT_TRUE(train(r) == reference) << describe(r) << " tied " << tied;
    }
  }
}

TEST(Engine, MisuseIsAUsageError) {
  run_threads(1, [](Comm& comm) {
    const TinyModel model(true);
    auto engine = initialize(model.units(), {}, comm);
    EXPECT_THROW(engine->step(), Error);
    EXPECT_THROW(engine->backward(Variable(full({}, 1))), Error);
    const Tensor ids = random_ids(0, 4);
    const Variable loss = engine->forward([&] { return model.loss(ids, ids); });
    engine->backward(loss);
    EXPECT_THROW(engine->backward(loss), Error);
    EXPECT_THROW(engine->forward([&] { return model.loss(ids, ids); }), Error) << "before step";
    engine->step();
    EXPECT_THROW(engine->forward([&] { return Variable(zeros({2})); }), Error);
  });
}

}  // namespace
}  // namespace sg::dist::testing

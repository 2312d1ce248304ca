// Positions without a target: a step follows the mean over all its targets, however rows are dealt
// to micro-batches and ranks, and with the same bits in every engine (numerics, rules 2, 5, 6 and
// 11).
#include <gtest/gtest.h>

#include <cmath>

#include "autograd/targets.h"
#include "core/ops.h"
#include "tests/dist/tiny_model.h"
#include "tests/errors.h"

namespace sg::dist::testing {
namespace {

constexpr int64_t context = 101;
constexpr EngineKind engines[] = {
    EngineKind::dp, EngineKind::ddp, EngineKind::zero1, EngineKind::zero2, EngineKind::zero3};

// How many targets the rows of the steps have, by their number; the first of each row.
struct Deal {
  int ranks, micro_steps;
  int64_t rows;  // of a micro-batch
  std::vector<int64_t> targets = {11, 101};
};

Options options_of(EngineKind kind, const Deal& deal) {
  Options o{.engine = kind, .lr = 0.05, .micro_steps = deal.micro_steps};
  o.accumulation = Accumulation::local_first;
  o.optimizer = {.type = "sgd"};
  o.first_bucket_bytes = o.bucket_bytes = 4096;
  return o;
}

// A micro-batch's targets, of rows first … first + rows − 1.
Tensor targets_of(const Deal& deal, uint64_t first) {
  std::vector<int32_t> all;
  for (uint64_t row = first; row < first + static_cast<uint64_t>(deal.rows); ++row) {
    const int64_t wanted = deal.targets[row % deal.targets.size()];
    std::vector<int32_t> ids = random_ids(2 * row + 1, context).to_vector<int32_t>();
    std::fill(ids.begin() + wanted, ids.end(), -1);
    all.insert(all.end(), ids.begin(), ids.end());
  }
  return from_vector(all);
}
Tensor tokens_of(const Deal& deal, uint64_t first) {
  std::vector<int32_t> all;
  for (uint64_t row = first; row < first + static_cast<uint64_t>(deal.rows); ++row) {
    const std::vector<int32_t> ids = random_ids(2 * row, context).to_vector<int32_t>();
    all.insert(all.end(), ids.begin(), ids.end());
  }
  return from_vector(all);
}

CommOptions group_of(int ranks) {
  CommOptions options;
  options.ranks = ranks;
  options.timeout = 30;
  options.device.threads = 1;
  return options;
}

Outcome run(const Deal& deal, const Options& options, int steps = 3, bool weighted = true) {
  Outcome outcome;
  std::mutex mutex;
  run_threads(group_of(deal.ranks), [&](Comm& comm) {
    const TinyModel model(true, false);
    auto engine = initialize(model.units(), options, comm);
    for (int i = 0; i < steps * deal.micro_steps; ++i) {
      const auto number = static_cast<uint64_t>((i * deal.ranks + comm.rank()) * deal.rows);
      const Tensor tokens = tokens_of(deal, number), targets = targets_of(deal, number);
      const auto loss = [&] { return model.loss(tokens, targets); };
      const Targets weight{count_targets(targets), deal.rows * context};
      engine->backward(engine->forward(loss, weighted ? std::optional(weight) : std::nullopt));
      const StepResult result = engine->step();
      if (!result.complete || comm.rank() != 0)
        continue;
      outcome.loss_bits.push_back(std::bit_cast<uint32_t>(result.loss));
      outcome.norms.push_back(result.norm);
    }
    collect(outcome, *engine, mutex);
  });
  return outcome;
}

void expect_near(const Outcome& a, const Outcome& b, const std::string& what) {
  for (size_t step = 0; step < a.norms.size(); ++step) {
    EXPECT_NEAR(
        std::bit_cast<float>(a.loss_bits[step]), std::bit_cast<float>(b.loss_bits[step]), 1e-6)
        << what;
    EXPECT_NEAR(a.norms[step], b.norms[step], 1e-6) << what << ", norm of step " << step;
  }
  for (const auto& [name, values] : a.state)
    for (size_t i = 0; i < values.size(); ++i)
      ASSERT_NEAR(values[i], b.state.at(name)[i], 1e-6) << what << name;
}

TEST(Weights, RowsOfOtherLengthsGiveTheSameStepHoweverTheyAreDealt) {
  const Deal together{1, 1, 2};
  const Outcome expected = run(together, options_of(EngineKind::ddp, together));
  for (const Deal& deal : {Deal{1, 2, 1}, Deal{2, 1, 1}}) {
    for (int form = 0; form < 5; ++form) {
      Options o = options_of(EngineKind::ddp, deal);
      if (form == 1)
        o.prescale_gradients = true;
      if (form == 2)
        o.predivide = 2;
      if (form == 3)
        o.elastic_determinism = true, o.accumulation = Accumulation::ranks_first;
      if (form == 4)
        o.accumulation = Accumulation::ranks_first;
      expect_near(run(deal, o), expected, fmt::format("{} ranks, form {}: ", deal.ranks, form));
    }
  }
  Options clipped = options_of(EngineKind::ddp, together);
  clipped.clip = 0.1;
  const Outcome cut = run(together, clipped);
  EXPECT_NE(cut.state, expected.state);
  clipped.micro_steps = 2;
  expect_near(run({1, 2, 1}, clipped), cut, "clipped: ");
}

// The model looks at each position alone: those without a target may as well not be there.
TEST(Weights, LossNormAndStepAreThoseOfTheTargetsAlone) {
  for (const double clip : {0.0, 0.1}) {
    const Deal deal{1, 2, 1};
    Options o = options_of(EngineKind::ddp, deal);
    o.clip = clip;
    const Outcome found = run(deal, o, 1);
    o.micro_steps = 1;
    Outcome expected;
    std::mutex mutex;
    run_threads(group_of(1), [&](Comm& comm) {
      const TinyModel model(true, false);
      auto engine = initialize(model.units(), o, comm);
      std::vector<int32_t> tokens, targets;
      for (uint64_t row : {0, 1}) {
        const auto count = static_cast<std::ptrdiff_t>(deal.targets[row]);
        const std::vector<int32_t> in = tokens_of(deal, row).to_vector<int32_t>();
        const std::vector<int32_t> out = targets_of(deal, row).to_vector<int32_t>();
        tokens.insert(tokens.end(), in.begin(), in.begin() + count);
        targets.insert(targets.end(), out.begin(), out.begin() + count);
      }
      engine->backward(
          engine->forward([&] { return model.loss(from_vector(tokens), from_vector(targets)); }));
      const StepResult result = engine->step();
      expected.loss_bits.push_back(std::bit_cast<uint32_t>(result.loss));
      expected.norms.push_back(result.norm);
      collect(expected, *engine, mutex);
    });
    expect_near(found, expected, fmt::format("clip {}: ", clip));
  }
}

TEST(Weights, EveryEngineHasDdpsBits) {
  for (const Deal& deal :
       {Deal{2, 2, 1}, Deal{3, 1, 2, {11, 101, 7}}, Deal{2, 2, 1, {0, 50, 101}}}) {
    for (const DType precision : {DType::f32, DType::f16}) {
      Options o = options_of(EngineKind::ddp, deal);
      o.precision = precision;
      o.loss_scale.initial_power = 10;
      const Outcome expected = run(deal, o);
      for (const EngineKind kind : engines) {
        o.engine = kind;
        EXPECT_EQ(run(deal, o), expected)
            << name_of(kind) << ", " << deal.ranks << " ranks, " << name_of(precision);
      }
    }
  }
}

TEST(Weights, OfOneChangeNoBits) {
  const Deal deal{2, 3, 1, {101}};
  const Options o = options_of(EngineKind::zero2, deal);
  EXPECT_EQ(run(deal, o, 3, true), run(deal, o, 3, false));
}

TEST(Weights, AMicroBatchWithoutTargetsCountsAsZeros) {
  const Deal some{1, 2, 1, {0, 101}}, alone{1, 1, 1, {101}};
  const Outcome both = run(some, options_of(EngineKind::ddp, some), 1);
  Outcome one = run({1, 1, 2, {0, 101}}, options_of(EngineKind::ddp, alone), 1);
  expect_near(both, one, "");
  for (const EngineKind kind : engines) {
    const Deal ranks{2, 1, 1, {0, 101}};
    expect_near(run(ranks, options_of(kind, ranks), 1), one, name_of(kind));
  }
}

// Of a micro-batch without targets not even what isn't a number comes through.
TEST(Weights, ABackwardPassWithoutTargetsLeavesNoTrace) {
  const auto losses_of = [](EngineKind kind, bool spoilt) {
    std::vector<float> losses;
    run_threads(group_of(2), [&](Comm& comm) {
      const Deal deal{2, 1, 1, {101, 0}};
      const TinyModel model(true, false);
      auto engine = initialize(model.units(), options_of(kind, deal), comm);
      const auto rank = static_cast<uint64_t>(comm.rank());
      for (int step = 0; step < 3; ++step) {
        const auto loss = [&] {
          const Variable mean = model.loss(tokens_of(deal, rank), targets_of(deal, rank));
          return spoilt && rank == 1 ? mul(mean, Variable(full({}, NAN))) : mean;
        };
        engine->backward(engine->forward(loss, Targets{deal.targets[rank], context}));
        const StepResult result = engine->step();
        if (rank == 0)
          losses.push_back(result.loss);
      }
    });
    return losses;
  };
  const std::vector<float> expected = losses_of(EngineKind::ddp, false);
  EXPECT_NE(expected[0], expected[2]);
  for (const EngineKind kind : engines)
    EXPECT_EQ(losses_of(kind, true), expected) << name_of(kind);
}

TEST(Weights, AStepWithoutAnyTargetNamesItselfAndIsDropped) {
  for (const EngineKind kind : engines) {
    for (const DType precision : {DType::f32, DType::f16}) {
      const Deal deal{2, 1, 1, {101, 101, 0, 0}};
      Options o = options_of(kind, deal);
      o.precision = precision;
      const std::string message = test::error_of(ErrorKind::numeric, [&] { run(deal, o); });
      EXPECT_NE(message.find("step 1: none of its 2 micro-batches has a target"), std::string::npos)
          << message;
    }
  }
}

TEST(Weights, AreRefusedWhereTheyAreMissingOrWrong) {
  const Deal deal{1, 1, 1, {11}};
  const Options options = options_of(EngineKind::ddp, deal);
  const std::string missing =
      test::error_of(ErrorKind::usage, [&] { run(deal, options, 1, false); });
  EXPECT_NE(missing.find("90 of 101 positions have no target"), std::string::npos) << missing;

  struct Case {
    Targets first, second;
    std::string message;
  };
  const Case cases[] = {
      {{12, 101}, {}, "given 12 targets, the loss counted 11"},
      {{11, 0}, {}, "11 targets of 0 positions"},
      {{11, 10}, {}, "11 targets of 10 positions"},
      {{-1, 101}, {}, "-1 targets of 101 positions"},
      {{11, 101},
       {11, 202},
       "targets of 202 positions in a step whose micro-batches before are of 101"},
  };
  for (const Case& c : cases) {
    run_threads(group_of(1), [&](Comm& comm) {
      const TinyModel model(true, false);
      Options o = options;
      o.micro_steps = 2;
      auto engine = initialize(model.units(), o, comm);
      const auto step = [&](const Targets& t) {
        engine->backward(engine->forward(
            [&] { return model.loss(tokens_of(deal, 0), targets_of(deal, 0)); }, t));
        engine->step();
      };
      const std::string message =
          test::error_of(ErrorKind::usage, [&] { step(c.first), step(c.second); });
      EXPECT_NE(message.find(c.message), std::string::npos) << message;
    });
  }
}

TEST(Weights, AreOverTheSameNumberOfPositionsOnAllRanks) {
  const std::string message = test::error_of(ErrorKind::usage, [] {
    run_threads(group_of(2), [](Comm& comm) {
      const Deal deal{2, 1, 1};
      const TinyModel model(true, false);
      auto engine = initialize(model.units(), options_of(EngineKind::zero1, deal), comm);
      const auto number = static_cast<uint64_t>(comm.rank());
      const Tensor targets = targets_of(deal, number);
      engine->backward(engine->forward([&] { return model.loss(tokens_of(deal, number), targets); },
                                       Targets{count_targets(targets), context + comm.rank()}));
      engine->step();
    });
  });
  EXPECT_NE(message.find("targets of 102 positions at rank 1, of 101 before"), std::string::npos)
      << message;
}

}  // namespace
}  // namespace sg::dist::testing

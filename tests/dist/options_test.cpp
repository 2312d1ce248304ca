// An engine's options are checked in C++ as the command line's are: before anything is computed, by
// name and value.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "autograd/ops.h"
#include "dist/engine.h"
#include "dist/launch.h"
#include "tests/errors.h"

namespace sg::dist {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN(),
                 infinity = std::numeric_limits<double>::infinity();

struct Wrong {
  const char* named;  // in the message
  std::function<void(Options&)> change;
};

const std::vector<Wrong>& wrong_options() {
  static const std::vector<Wrong> all = {
      {"engine: lr must be a number of at least 0, not ", [](Options& o) { o.lr = -1; }},
      {"engine: lr must be a number of at least 0, not ", [](Options& o) { o.lr = nan; }},
      {"engine: lr must be a number of at least 0, not ", [](Options& o) { o.lr = infinity; }},
      {"clip", [](Options& o) { o.clip = -1; }},
      {"clip", [](Options& o) { o.clip = nan; }},
      {"clip", [](Options& o) { o.clip = infinity; }},
      {"micro_steps", [](Options& o) { o.micro_steps = 0; }},
      {"micro_steps", [](Options& o) { o.micro_steps = -3; }},
      {"bucket_bytes", [](Options& o) { o.bucket_bytes = 0; }},
      {"first_bucket_bytes", [](Options& o) { o.first_bucket_bytes = -1; }},
      {"prefetch", [](Options& o) { o.prefetch_elements = -1; }},
      {"max_live", [](Options& o) { o.max_live_elements = -1; }},
      {"persistent", [](Options& o) { o.persistent_elements = -1; }},
      {"predivide", [](Options& o) { o.predivide = 0; }},
      {"predivide", [](Options& o) { o.predivide = nan; }},
      {"precision", [](Options& o) { o.precision = DType::i32; }},
      {"communication", [](Options& o) { o.communication = DType::f64; }},
  };
  return all;
}

TEST(EngineOptions, ValuesOutOfRangeAreRefusedByNameInEveryEngine) {
  for (const EngineKind kind :
       {EngineKind::none, EngineKind::ddp, EngineKind::zero1, EngineKind::zero3}) {
    for (const Wrong& wrong : wrong_options()) {
      run_threads(1, [&](Comm& comm) {
        const Variable w(full({2, 2}, 1), true, "w");
        Options options{.engine = kind};
        wrong.change(options);
        const auto message = test::error_of(ErrorKind::usage, [&] {
          initialize({{"u", {w}}}, options, comm);
        });
        EXPECT_NE(message.find(wrong.named), std::string::npos) << name_of(kind) << ": " << message;
      });
    }
  }
}

struct Differing {
  const char* named;  // in the message: the option, and what ranks 0 and 1 have
  std::function<void(Options&)> change;
};

const std::vector<Differing>& differing_options() {
  static const std::vector<Differing> all = {
      {"engine: rank 0 has \"zero3\", rank 1 has \"zero2\"",
       [](Options& o) { o.engine = EngineKind::zero2; }},
      {"lr: rank 0 has \"0.001\", rank 1 has \"0.002\"", [](Options& o) { o.lr = 2e-3; }},
      {"micro_steps: rank 0 has \"1\", rank 1 has \"2\"", [](Options& o) { o.micro_steps = 2; }},
      {"accumulation: rank 0", [](Options& o) { o.accumulation = Accumulation::local_first; }},
      {"clip: rank 0 has \"0\", rank 1 has \"1\"", [](Options& o) { o.clip = 1; }},
      {"optimizer: rank 0 has \"adamw\", rank 1 has \"sgd\"",
       [](Options& o) { o.optimizer.type = "sgd"; }},
      {"beta1", [](Options& o) { o.optimizer.beta1 = 0.5; }},
      {"beta2", [](Options& o) { o.optimizer.beta2 = 0.5; }},
      {"eps", [](Options& o) { o.optimizer.eps = 1; }},
      {"weight_decay", [](Options& o) { o.optimizer.weight_decay = 0.5; }},
      {"momentum", [](Options& o) { o.optimizer.momentum = 0.5; }},
      {"nesterov", [](Options& o) { o.optimizer.nesterov = true; }},
      {"reduction", [](Options& o) { o.reduction = Algorithm::ring; }},
      {"precision", [](Options& o) { o.precision = DType::bf16, o.communication = DType::f32; }},
      {"communication", [](Options& o) { o.communication = DType::bf16; }},
      {"on_nonfinite", [](Options& o) { o.on_nonfinite = OnNonFinite::skip; }},
      {"prescale_gradients", [](Options& o) { o.prescale_gradients = true; }},
      {"predivide", [](Options& o) { o.predivide = 2; }},
      {"elastic_determinism", [](Options& o) { o.elastic_determinism = true; }},
      {"overlap: rank 0 has \"on\", rank 1 has \"off\"", [](Options& o) { o.overlap = false; }},
      {"partition: rank 0 has \"bucket\"",
       [](Options& o) { o.partition = PartitionKind::contiguous; }},
      {"first_bucket_bytes", [](Options& o) { o.first_bucket_bytes = 64; }},
      {"bucket_bytes", [](Options& o) { o.bucket_bytes = 64; }},
      {"zero1_reduce", [](Options& o) { o.zero1_all_reduce = true; }},
      {"prefetch: rank 0 has \"50000000\", rank 1 has \"3\"",
       [](Options& o) { o.prefetch_elements = 3; }},
      {"max_live", [](Options& o) { o.max_live_elements = 100; }},
      {"persistent", [](Options& o) { o.persistent_elements = 100; }},
  };
  return all;
}

TEST(EngineOptions, RanksThatDifferInAnyAreRefusedBeforeTheFirstStep) {
  for (const Differing& differing : differing_options()) {
    const auto message = test::error_of(ErrorKind::usage, [&] {
      run_threads(2, [&](Comm& comm) {
        const Variable w(full({2, 2}, 1), true, "w");
        Options options{.engine = EngineKind::zero3};
        if (comm.rank() == 1)
          differing.change(options);
        initialize({{"u", {w}}}, options, comm);
      });
    });
    EXPECT_NE(message.find(std::string("initialize: ranks disagree on ") + differing.named),
              std::string::npos)
        << differing.named << " in: " << message;
  }
}

TEST(EngineOptions, LossScalesThatDifferAreRefusedWhereTheyAreUsed) {
  const auto start = [](DType precision) {
    run_threads(2, [&](Comm& comm) {
      const Variable w(full({2, 2}, 1, precision), true, "w");
      Options options{.engine = EngineKind::ddp, .precision = precision};
      options.loss_scale.window = 10 + comm.rank();
      initialize({{"u", {w}}}, options, comm);
    });
  };
  start(DType::f32);
  const auto message = test::error_of(ErrorKind::usage, [&] { start(DType::f16); });
  EXPECT_NE(message.find("ranks disagree on loss_scale"), std::string::npos) << message;
}

TEST(EngineOptions, ParametersThatAreNoneAreRefusedByName) {
  const std::pair<const char*, Variable> cases[] = {
      {"undefined", Variable()},
      {"i32", Variable(zeros({2}, DType::i32), false, "count")},
      {"result of an op", scale(Variable(zeros({2}), true, "w"), 2)},
  };
  for (const auto& [named, variable] : cases) {
    run_threads(1, [&, named = named, variable = variable](Comm& comm) {
      const Variable w(full({2, 2}, 1), true, "w");
      const auto message = test::error_of(ErrorKind::usage, [&] {
        initialize({{"u", {w, variable}}}, {}, comm);
      });
      EXPECT_NE(message.find(named), std::string::npos) << message;
    });
  }
  run_threads(
      1, [&](Comm& comm) { test::error_of(ErrorKind::usage, [&] { initialize({}, {}, comm); }); });
}

}  // namespace
}  // namespace sg::dist

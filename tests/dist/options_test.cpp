// An engine's options are checked in C++ as the command line's are: before anything is computed, by name and value.
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

constexpr double nan = std::numeric_limits<double>::quiet_NaN(), infinity = std::numeric_limits<double>::infinity();

struct Wrong {
  const char* named;  // in the message
  std::function<void(Options&)> change;
};

const std::vector<Wrong>& wrong_options() {
  static const std::vector<Wrong> all = {
      {"learning rate", [](Options& o) { o.lr = -1; }},
      {"learning rate", [](Options& o) { o.lr = nan; }},
      {"learning rate", [](Options& o) { o.lr = infinity; }},
      {"clip", [](Options& o) { o.clip = -1; }},
      {"clip", [](Options& o) { o.clip = nan; }},
      {"clip", [](Options& o) { o.clip = infinity; }},
      {"micro_steps", [](Options& o) { o.micro_steps = 0; }},
      {"micro_steps", [](Options& o) { o.micro_steps = -3; }},
      {"bucket sizes", [](Options& o) { o.bucket_bytes = 0; }},
      {"bucket sizes", [](Options& o) { o.first_bucket_bytes = -1; }},
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
  for (const EngineKind kind : {EngineKind::none, EngineKind::ddp, EngineKind::zero1, EngineKind::zero3}) {
    for (const Wrong& wrong : wrong_options()) {
      run_threads(1, [&](Comm& comm) {
        const Variable w(full({2, 2}, 1), true, "w");
        Options options{.engine = kind};
        wrong.change(options);
        const auto message = test::error_of(ErrorKind::usage, [&] { initialize({{"u", {w}}}, options, comm); });
        EXPECT_NE(message.find(wrong.named), std::string::npos) << name_of(kind) << ": " << message;
      });
    }
  }
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
      const auto message = test::error_of(ErrorKind::usage, [&] { initialize({{"u", {w, variable}}}, {}, comm); });
      EXPECT_NE(message.find(named), std::string::npos) << message;
    });
  }
  run_threads(1, [&](Comm& comm) { test::error_of(ErrorKind::usage, [&] { initialize({}, {}, comm); }); });
}

}  // namespace
}  // namespace sg::dist

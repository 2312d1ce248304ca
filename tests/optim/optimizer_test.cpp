// Optimizers against the textbook's formulas in f64, and what engines rely on: splits, factors,
// 16-bit copies, counting.
#include "optim/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "core/ops.h"

namespace sg::optim {
namespace {

struct Scalar {
  double p, s1 = 0, s2 = 0;
};
using Rule = std::function<void(Scalar&, double g, double lr, double decay, int t)>;

struct Row {
  const char* name;
  OptimizerOptions options;
  Rule rule;
};

std::vector<Row> rows() {
  const auto adam = [](bool decoupled) {
    return [decoupled](Scalar& x, double g, double lr, double decay, int t) {
      if (decoupled)
        x.p -= lr * decay * x.p;
      else
        g += decay * x.p;
      x.s1 = 0.9 * x.s1 + 0.1 * g;
      x.s2 = 0.95 * x.s2 + 0.05 * g * g;
      x.p -=
          lr * (x.s1 / (1 - std::pow(0.9, t))) / (std::sqrt(x.s2 / (1 - std::pow(0.95, t))) + 1e-8);
    };
  };
  const auto sgd = [](double momentum, bool nesterov) {
    return [momentum, nesterov](Scalar& x, double g, double lr, double decay, int t) {
      g += decay * x.p;
      x.s1 = t == 1 ? g : momentum * x.s1 + g;
      x.p -= lr * (momentum == 0 ? g : nesterov ? g + momentum * x.s1 : x.s1);
    };
  };
  const Rule lion = [](Scalar& x, double g, double lr, double decay, int) {
    const double direction = 0.9 * x.s1 + 0.1 * g;
    x.p -= lr * decay * x.p;
    x.p -= lr * (direction > 0 ? 1 : direction < 0 ? -1 : 0);
    x.s1 = 0.95 * x.s1 + 0.05 * g;
  };
  return {
      {"adamw", {.type = "adamw"}, adam(true)},
      {"adam", {.type = "adam"}, adam(false)},
      {"sgd", {.type = "sgd", .momentum = 0}, sgd(0, false)},
      {"sgd with momentum", {.type = "sgd", .momentum = 0.9}, sgd(0.9, false)},
      {"sgd by nesterov", {.type = "sgd", .momentum = 0.9, .nesterov = true}, sgd(0.9, true)},
      {"lion", {.type = "lion"}, lion},
  };
}

std::vector<float> wave(size_t n, double frequency) {
  std::vector<float> values(n);
  for (size_t i = 0; i < n; ++i)
    values[i] = static_cast<float>(std::sin(frequency * static_cast<double>(i + 1)));
  return values;
}

constexpr size_t count = 37;  // no multiple of a vector
constexpr int steps = 4;

Slice slice_of(const Optimizer& optimizer, const Tensor& master, size_t group = 0) {
  return {.master = master,
          .gradient = {},
          .parameter = {},
          .state = optimizer.make_state(master.numel(), cpu()),
          .group = group};
}

TEST(Optimizer, FollowsItsFormula) {
  for (const Row& row : rows()) {
    const auto optimizer = make_optimizer(row.options);
    optimizer->set_learning_rate(0.05);
    const Tensor master = from_vector(wave(count, 0.7));
    Slice slice = slice_of(*optimizer, master);
    std::vector<Scalar> expected;
    for (float p : wave(count, 0.7))
      expected.push_back({p});
    for (int t = 1; t <= steps; ++t) {
      const auto gradient = wave(count, 0.3 * t);
      slice.gradient = from_vector(gradient);
      optimizer->step({&slice, 1}, 0.5f);
      for (size_t i = 0; i < count; ++i)
        row.rule(expected[i], 0.5 * gradient[i], 0.05, 0.1, t);
    }
    EXPECT_EQ(optimizer->t(), steps);
    const auto found = master.to_vector<float>();
    for (size_t i = 0; i < count; ++i)
      EXPECT_NEAR(found[i], expected[i].p, 2e-6) << row.name << " element " << i;
  }
}

// ZeRO owners step shards and ddp steps everything: the bits must not tell them apart.
TEST(Optimizer, GivesTheSameBitsForAnySplit) {
  for (const Row& row : rows()) {
    const auto whole = make_optimizer(row.options), split = make_optimizer(row.options);
    const Tensor a = from_vector(wave(count, 0.7)), b = clone(a);
    Slice slice = slice_of(*whole, a);
    Slice parts[] = {slice_of(*split, b.slice(0, 0, 5)),
                     slice_of(*split, b.slice(0, 5, 5)),
                     slice_of(*split, b.slice(0, 5, count))};
    for (int t = 1; t <= steps; ++t) {
      slice.gradient = from_vector(wave(count, 0.3 * t));
      parts[0].gradient = slice.gradient.slice(0, 0, 5);
      parts[1].gradient = slice.gradient.slice(0, 5, 5);
      parts[2].gradient = slice.gradient.slice(0, 5, count);
      whole->step({&slice, 1}, 0.25f);
      split->step(parts, 0.25f);
    }
    EXPECT_EQ(a.to_vector<float>(), b.to_vector<float>()) << row.name;
  }
}

TEST(Optimizer, RoundsTheMasterIntoThe16BitCopy) {
  for (DType dtype : {DType::bf16, DType::f16}) {
    for (const Row& row : rows()) {
      const auto optimizer = make_optimizer(row.options);
      const Tensor master = from_vector(wave(count, 0.7));
      Slice slice = slice_of(*optimizer, master);
      slice.parameter = cast(master, dtype);
      slice.gradient = cast(from_vector(wave(count, 0.3)), dtype);
      optimizer->step({&slice, 1});
      EXPECT_EQ(cast(slice.parameter, DType::f32).to_vector<float>(),
                cast(cast(master, dtype), DType::f32).to_vector<float>())
          << row.name << " " << name_of(dtype);
    }
  }
}

TEST(Optimizer, NormsAndBiasesDontDecay) {
  EXPECT_EQ(group_of({3, 4}), 0u);
  EXPECT_EQ(group_of({4}), 1u);
  const auto optimizer = make_optimizer({.type = "adamw", .weight_decay = 0.5});
  Slice gain = slice_of(*optimizer, from_vector<float>({1, 2}), group_of({2}));
  gain.gradient = full({2}, 0);
  optimizer->step({&gain, 1});
  EXPECT_EQ(gain.master.to_vector<float>(), (std::vector<float>{1, 2}));
}

TEST(Optimizer, BooksItsStateAndNamesIt) {
  const auto optimizer = make_optimizer({});
  const uint64_t before = pool(cpu()).ledger().held(Category::optimizer);
  const auto state = optimizer->make_state(100, cpu());
  EXPECT_EQ(pool(cpu()).ledger().held(Category::optimizer) - before, 2 * 100 * sizeof(float));
  EXPECT_EQ(optimizer->state_names(), (std::vector<std::string>{"moment1", "moment2"}));
  EXPECT_EQ(make_optimizer({.type = "sgd", .momentum = 0})->state_names().size(), 0u);
  EXPECT_EQ(make_optimizer({.type = "lion"})->state_names(),
            (std::vector<std::string>{"momentum"}));
}

TEST(Optimizer, RefusesWhatMakesNoSense) {
  EXPECT_THROW(make_optimizer({.type = "adamax"}), Error);
  EXPECT_THROW(make_optimizer({.beta1 = 1}), Error);
  EXPECT_THROW(make_optimizer({.weight_decay = -0.1}), Error);
  EXPECT_THROW(make_optimizer({.type = "sgd", .momentum = 0, .nesterov = true}), Error);
}

// m and v are estimates of g and g² from the first step on: Adam starts with -lr, whatever its
// betas.
TEST(Optimizer, AdamsFirstStepIsTheLearningRateForAnyBetas) {
  for (const char* type : {"adamw", "adam"}) {
    for (const double beta1 : {0.0, 0.8, 0.9, 0.99}) {
      for (const double beta2 :
           {0.0, 0.9, 0.95, 0.99, 0.999, 0.9999, 0.99999, 0.999999, 0.9999999}) {
        const auto optimizer =
            make_optimizer({.type = type, .beta1 = beta1, .beta2 = beta2, .weight_decay = 0});
        optimizer->set_learning_rate(1);
        Slice slice = slice_of(*optimizer, from_vector(std::vector<float>(count, 0)));
        slice.gradient = from_vector(wave(count, 0.3));
        optimizer->step({&slice, 1});
        const auto p = slice.master.to_vector<float>(), g = wave(count, 0.3);
        for (size_t i = 0; i < count; ++i) {
          EXPECT_NEAR(p[i], -g[i] / (std::abs(static_cast<double>(g[i])) + 1e-8), 1e-7)
              << type << " " << beta2;
        }
      }
    }
  }
}

// A constant gradient is its own estimate at every step, if moments and corrections are made of the
// same betas.
TEST(Optimizer, AdamsCorrectionsFitItsMoments) {
  for (const double beta2 : {0.9, 0.999, 0.99999, 0.9999999}) {
    const auto optimizer = make_optimizer({.beta2 = beta2, .weight_decay = 0});
    optimizer->set_learning_rate(1);
    Slice slice = slice_of(*optimizer, zeros({1}));
    for (int t = 1; t <= 5; ++t) {
      fill_(slice.master, 0);
      slice.gradient = full({1}, 0.5);
      optimizer->step({&slice, 1});
      EXPECT_NEAR(slice.master.item<float>(), -1, 5e-7) << "beta2 " << beta2 << " step " << t;
    }
  }
}

TEST(Optimizer, ValuesOutOfRangeAreRefused) {
  const double nan = std::nan(""), infinity = HUGE_VAL;
  const OptimizerOptions wrong[] = {{.beta1 = -0.1},
                                    {.beta1 = nan},
                                    {.beta2 = 1},
                                    {.beta2 = 0.99999999},  // 1 as f32
                                    {.beta2 = nan},
                                    {.eps = 0},
                                    {.eps = -1},
                                    {.eps = nan},
                                    {.eps = 1e-60},
                                    {.weight_decay = -0.1},
                                    {.weight_decay = nan},
                                    {.weight_decay = infinity},
                                    {.momentum = 1},
                                    {.momentum = nan}};
  for (const OptimizerOptions& options : wrong)
    EXPECT_THROW(make_optimizer(options), Error);
  const auto optimizer = make_optimizer({});
  for (const double lr : {-1.0, nan, infinity, 1e300})
    EXPECT_THROW(optimizer->set_learning_rate(lr), Error) << lr;
  EXPECT_EQ(optimizer->learning_rate(), 1e-3);
}

TEST(Optimizer, SlicesThatDontFitAreRefused) {
  const auto good = [](const Optimizer& optimizer) {
    Slice slice = slice_of(optimizer, zeros({4}));
    slice.gradient = zeros({4});
    return slice;
  };
  const std::pair<const char*, std::function<void(Slice&)>> cases[] = {
      {"undefined master", [](Slice& s) { s.master = {}; }},
      {"undefined gradient", [](Slice& s) { s.gradient = {}; }},
      {"no state", [](Slice& s) { s.state.clear(); }},
      {"undefined state", [](Slice& s) { s.state[0] = {}; }},
      {"state of another size", [](Slice& s) { s.state[0] = zeros({3}); }},
      {"gradient of another size", [](Slice& s) { s.gradient = zeros({3}); }},
      {"gradient of integers", [](Slice& s) { s.gradient = zeros({4}, DType::i32); }},
      {"gradient of f64", [](Slice& s) { s.gradient = zeros({4}, DType::f64); }},
      {"gradient elsewhere", [](Slice& s) { s.gradient = empty({4}, DType::f32, meta()); }},
      {"master of f16", [](Slice& s) { s.master = zeros({4}, DType::f16); }},
      {"copy of f32", [](Slice& s) { s.parameter = zeros({4}); }},
  };
  for (const char* type : {"adamw", "lion", "sgd"}) {
    for (const auto& [name, change] : cases) {
      const auto optimizer = make_optimizer({.type = type});
      Slice slice = good(*optimizer);
      change(slice);
      EXPECT_THROW(optimizer->step({&slice, 1}), Error) << type << ": " << name;
    }
    const auto optimizer = make_optimizer({.type = type});
    Slice slice = good(*optimizer);
    for (const float factor : {-1.0f, static_cast<float>(std::nan("")), HUGE_VALF})
      EXPECT_THROW(optimizer->step({&slice, 1}, factor), Error) << type << " factor " << factor;
    EXPECT_NO_THROW(optimizer->step({}));
  }
}

}  // namespace
}  // namespace sg::optim

// What the layers compute that the ops' own tests don't show: initial values, composition, modes.
#include "nn/layers.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "core/ops.h"
#include "nn/attention.h"
#include "nn/loss.h"
#include "nn/micro_step.h"

namespace sg::nn {
namespace {

double mean_of(const std::vector<float>& x) {
  double sum = 0;
  for (const float v : x)
    sum += v;
  return sum / static_cast<double>(x.size());
}
double deviation_of(const std::vector<float>& x) {
  double sum = 0;
  const double mean = mean_of(x);
  for (const float v : x)
    sum += (v - mean) * (v - mean);
  return std::sqrt(sum / static_cast<double>(x.size()));
}

TEST(Init, ValuesDependOnSeedAndPathAlone) {
  Linear a({.in = 30, .out = 20}), b({.in = 30, .out = 20});
  a.initialize(1);
  b.initialize(1);
  EXPECT_EQ(a.weight.tensor().to_vector<float>(), b.weight.tensor().to_vector<float>());
  b.initialize(2);
  EXPECT_NE(a.weight.tensor().to_vector<float>(), b.weight.tensor().to_vector<float>());
  Sequential inside(std::make_unique<Linear>(LinearOptions{.in = 30, .out = 20}));
  inside.initialize(1);
  EXPECT_NE(inside.parameters()[0].tensor().to_vector<float>(),
            a.weight.tensor().to_vector<float>())
      << "another path, other values";
}

TEST(Init, ATableLargerThanOneRunIsDrawnAsAWhole) {
  Embedding table(5000, 100, normal(0.02f));
  table.initialize(3);
  const std::vector<float> values = table.weight.tensor().to_vector<float>();
  EXPECT_NEAR(mean_of(values), 0, 2e-4);
  EXPECT_NEAR(deviation_of(values), 0.02, 2e-4);
  const Tensor whole = random_normal({5000, 100}, {.seed = 3, .op = hash_path("weight")}, 0, 0.02f);
  EXPECT_EQ(values, whole.to_vector<float>());
}

TEST(Init, UniformStaysWithinItsBound) {
  Linear layer({.in = 16, .out = 64});
  layer.initialize(1);
  for (const float v : layer.weight.tensor().to_vector<float>())
    EXPECT_LE(std::abs(v), 0.25f);
}

TEST(Layers, SequentialIsItsLayersInOrder) {
  Sequential model(std::make_unique<Linear>(LinearOptions{.in = 4, .out = 8}),
                   std::make_unique<LayerNorm>(8),
                   std::make_unique<RMSNorm>(8),
                   std::make_unique<MLP>(MLPOptions{.width = 8, .hidden = 16}));
  model.initialize(1);
  const Variable y = model.forward(Variable(random_normal({3, 4}, {.seed = 5})));
  EXPECT_EQ(y.shape(), (Shape{3, 8}));
  EXPECT_EQ(model.parameters()[0].name(), "0.weight");
  EXPECT_EQ(model.parameters().back().name(), "3.out.bias");
}

TEST(Layers, DropoutZeroesItsShareAndKeepsTheMean) {
  Dropout dropout(0.25f);
  const Variable x(full({8, 4096}, 1));
  MicroStepScope scope(1, 0, 0);
  const std::vector<float> y = dropout.forward(x).tensor().to_vector<float>();
  EXPECT_NEAR(mean_of(y), 1, 0.02);
  for (const float v : y)
    EXPECT_TRUE(v == 0 || std::abs(v - 4.0f / 3) < 1e-6f) << v;
  dropout.eval();
  EXPECT_EQ(dropout.forward(x), x);
}

TEST(Layers, DropoutOfASampleDoesntDependOnItsPlaceInTheBatch) {
  Dropout dropout(0.5f);
  const auto drop = [&](uint64_t first, int64_t rows) {
    MicroStepScope scope(9, 4, first);
    return dropout.forward(Variable(full({rows, 64}, 1))).tensor();
  };
  EXPECT_EQ(drop(0, 4).slice(0, 2, 4).to_vector<float>(), drop(2, 2).to_vector<float>());
}

TEST(Layers, AttentionIsCausal) {
  CausalSelfAttention attention({.width = 16, .heads = 2});
  attention.initialize(1);
  const Tensor x = random_normal({1, 6, 16}, {.seed = 2});
  const std::vector<float> before =
      attention.forward(Variable(x)).tensor().slice(1, 0, 5).to_vector<float>();
  fill_(x.slice(1, 5, 6), 3);
  EXPECT_EQ(attention.forward(Variable(x)).tensor().slice(1, 0, 5).to_vector<float>(), before);
}

TEST(Layers, HeadsMustDivideTheWidth) {
  EXPECT_THROW(CausalSelfAttention({.width = 10, .heads = 3}), Error);
}

TEST(Loss, HuberIsSquaredInsideAndLinearOutside) {
  const Variable prediction(from_vector<float>({0.5f, 3})), target(from_vector<float>({0, 0}));
  EXPECT_FLOAT_EQ(huber_loss(prediction, target).item(), (0.125f + 2.5f) / 2);
  EXPECT_FLOAT_EQ(mse_loss(prediction, target).item(), (0.25f + 9) / 2);
}

TEST(Layers, SizesAndProbabilitiesOutOfRangeAreRefused) {
  const float nan = std::nanf("");
  const std::pair<const char*, std::function<void()>> cases[] = {
      {"linear in 0", [] { Linear({.in = 0, .out = 3}); }},
      {"linear out -1", [] { Linear({.in = 3, .out = -1}); }},
      {"embedding of 0", [] { Embedding(0, 4); }},
      {"embedding of width -4", [] { Embedding(4, -4); }},
      {"layernorm 0", [] { LayerNorm(0); }},
      {"layernorm -1", [] { LayerNorm(-1); }},
      {"layernorm eps", [] { LayerNorm(4, {.eps = -1}); }},
      {"layernorm eps NaN", [=] { LayerNorm(4, {.eps = nan}); }},
      {"rmsnorm 0", [] { RMSNorm(0); }},
      {"rmsnorm eps NaN", [=] { RMSNorm(4, nan); }},
      {"dropout 1", [] { Dropout(1); }},
      {"dropout -0.1", [] { Dropout(-0.1f); }},
      {"dropout NaN", [=] { Dropout{nan}; }},
      {"mlp 0", [] { MLP({.width = 0, .hidden = 4}); }},
      {"mlp hidden 0", [] { MLP({.width = 4, .hidden = 0}); }},
      {"attention of 0 heads", [] { CausalSelfAttention({.width = 8, .heads = 0}); }},
      {"attention of -2 heads", [] { CausalSelfAttention({.width = 8, .heads = -2}); }},
      {"attention dropout NaN",
       [=] { CausalSelfAttention({.width = 8, .heads = 2, .dropout = nan}); }},
      {"normal NaN", [=] { normal(nan); }},
      {"normal -1", [] { normal(-1); }},
      {"uniform -1", [] { uniform(-1); }},
      {"fan in 0", [] { fan_in_uniform(0); }},
      {"xavier 0", [] { xavier_uniform(0, 0); }},
      {"kaiming 0", [] { kaiming_normal(0); }},
      {"no layer", [] { Sequential(std::unique_ptr<Linear>()); }},
      {"huber delta", [] { huber_loss(Variable(full({1}, 1)), Variable(full({1}, 2)), -1); }},
  };
  for (const auto& [name, make] : cases)
    EXPECT_THROW(make(), Error) << name;
}

}  // namespace
}  // namespace sg::nn

// A recomputed region must not show in anything but memory.
#include "autograd/recompute.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "autograd/hooks.h"
#include "autograd/ops.h"

namespace sg {
namespace {

using Floats = std::vector<float>;

Variable leaf(size_t n, const Shape& shape, std::string name) {
  Floats values(n);
  for (size_t i = 0; i < n; ++i)
    values[i] = std::sin(static_cast<float>(i) + static_cast<float>(name.size()));
  return Variable(from_vector(values, shape), true, std::move(name));
}

struct Model {
  Variable input = leaf(12, {3, 4}, "in"), weight = leaf(16, {4, 4}, "weight"),
           other = leaf(16, {4, 4}, "another");

  Variable block(const Variable& x) const {
    return tanh(linear(gelu(linear(x, weight)), other)) + linear(x, weight);
  }
  Variable loss(bool again) const {
    Variable x = scale(input, 2);
    for (int i = 0; i < 3; ++i)
      x = again ? recompute([this](const Variable& h) { return block(h); }, x) : block(x);
    return sum(linear(x, weight));  // the weight is tied into and out of the regions
  }
};

TEST(Recompute, GivesTheSameBits) {
  const Model kept, again;
  const Variable a = kept.loss(false), b = again.loss(true);
  EXPECT_EQ(a.item(), b.item());
  backward(a);
  backward(b);
  for (auto member : {&Model::input, &Model::weight, &Model::other}) {
    EXPECT_EQ((kept.*member).grad().to_vector<float>(), (again.*member).grad().to_vector<float>())
        << (kept.*member).name();
  }
}

TEST(Recompute, ATiedLeafIsCompleteOnce) {
  Model model;
  int fired = 0;
  Floats seen;
  model.weight.on_gradient([&](const Variable& w) { ++fired, seen = w.grad().to_vector<float>(); });
  const auto reached = backward(model.loss(true));
  EXPECT_EQ(fired, 1);
  EXPECT_EQ(seen, model.weight.grad().to_vector<float>());
  EXPECT_EQ(reached.size(), 3u);  // none of the regions' own inputs
}

TEST(Recompute, LeavesAreCompleteAsSoonAsTheirLastUseIsDone) {
  Model model;
  std::vector<std::string> order;
  const auto note = [&](const Variable& x) { order.push_back(x.name()); };
  model.other.on_gradient(note);
  model.weight.on_gradient(note);
  model.input.on_gradient(note);
  backward(sum(recompute([&](const Variable& x) { return model.block(x); }, model.input)));
  EXPECT_EQ(order, (std::vector<std::string>{"another", "weight", "in"}));
}

// The classifier makes its gradients with the loss, for the seed that is foretold: where small ones
// vanish in 16 bits but for that scale they must not vanish in a region either.
TEST(Recompute, OfTheClassifierGivesItsBits) {
  constexpr int64_t rows = 256;
  std::vector<int32_t> ids;
  for (int i = 0; i < rows; ++i)
    ids.push_back(i % 40);
  const Tensor targets = from_vector(ids);
  const auto gradients = [&](DType dtype, float seed, float size, bool foretold, bool again) {
    const auto leaf = [&](const Shape& shape, uint64_t number) {
      return Variable(cast(scale(random_normal(shape, {.seed = number}), size), dtype), true);
    };
    const Variable x = leaf({rows, 8}, 1), w = leaf({40, 8}, 2);
    Variable loss;
    {
      const ExpectedSeed scope(foretold ? std::optional(seed) : std::nullopt);
      const auto f = [&](const Variable& h) { return classifier_loss(h, w, targets); };
      loss = again ? recompute(f, x) : f(x);
    }
    backward(loss, {.seed = full({}, seed)});
    Floats all = cast(x.grad(), DType::f32).to_vector<float>(),
           dw = cast(w.grad(), DType::f32).to_vector<float>();
    all.insert(all.end(), dw.begin(), dw.end());
    return all;
  };
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const float seed : {1.0f, 1.0f / 3, 65536.0f})
      for (const float size : {1.0f, 0.01f})
        for (const bool foretold : {true, false}) {
          const Floats kept = gradients(dtype, seed, size, foretold, false);
          EXPECT_EQ(gradients(dtype, seed, size, foretold, true), kept)
              << name_of(dtype) << " seed " << seed;
          const bool saved = foretold && seed > 1;  // from vanishing
          EXPECT_TRUE(!saved || std::count(kept.begin(), kept.end(), 0.0f) == 0) << name_of(dtype);
        }
}

TEST(Recompute, NestsAndRetains) {
  const Model kept, again;
  const auto nested = [&](const Variable& x) {
    return recompute([&](const Variable& h) { return again.block(h); }, again.block(x));
  };
  const Variable a = sum(kept.block(kept.block(kept.input))),
                 b = sum(recompute(nested, again.input));
  for (const Variable& root : {a, b}) {
    backward(root, {.retain_graph = true});
    backward(root);
  }
  EXPECT_EQ(kept.weight.grad().to_vector<float>(), again.weight.grad().to_vector<float>());
  EXPECT_EQ(kept.input.grad().to_vector<float>(), again.input.grad().to_vector<float>());
}

TEST(Recompute, KeepsNoActivations) {
  const Variable x = leaf(1000, {1000}, "x");
  const auto deep = [](const Variable& h) { return tanh(tanh(tanh(tanh(h)))); };
  const auto held_by = [&](const std::function<Variable()>& f) {
    const uint64_t before = pool(cpu()).ledger().held(Category::activations);
    const Variable y = f();
    return pool(cpu()).ledger().held(Category::activations) - before;
  };
  EXPECT_EQ(held_by([&] { return recompute(deep, x); }), 4000u);
  EXPECT_EQ(held_by([&] { return deep(x); }), 16000u);
}

TEST(Recompute, UnitsInsideAreEnteredAgain) {
  std::vector<std::string> log;
  Unit unit;
  unit.hooks->before_forward = [&] { log.push_back(recomputing() ? "forward again" : "forward"); };
  unit.hooks->before_backward = [&] { log.push_back("backward"); };
  unit.hooks->after_backward = [&] { log.push_back("done"); };
  const Model model;
  const auto region = [&](const Variable& x) {
    return call_unit(unit.hooks, [&] { return model.block(x); });
  };
  backward(sum(recompute(region, model.input)));
  EXPECT_EQ(log, (std::vector<std::string>{"forward", "forward again", "backward", "done"}));
}

TEST(Recompute, RefusesAResultFromOutside) {
  const Model model;
  const Variable outside = scale(model.input, 2);
  EXPECT_THROW(recompute([&](const Variable& x) { return x + outside; }, model.input), Error);
}

}  // namespace
}  // namespace sg

// A recomputed region must not show in anything but memory.
#include "autograd/recompute.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "autograd/hooks.h"
#include "autograd/ops.h"
#include "core/device.h"
#include "tests/errors.h"

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

TEST(Recompute, LeavesAreCompleteWhenTheyAreWithoutARegion) {
  const auto order = [](bool again) {
    Model model;
    std::vector<std::string> complete;
    for (Variable x : {model.other, model.weight, model.input})
      x.on_gradient([&](const Variable& leaf) { complete.push_back(leaf.name()); });
    const auto block = [&](const Variable& x) { return model.block(x); };
    backward(sum(again ? recompute(block, model.input) : block(model.input)));
    return complete;
  };
  EXPECT_EQ(order(true), (std::vector<std::string>{"another", "in", "weight"}));
  EXPECT_EQ(order(true), order(false));
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

using Variables = std::vector<Variable>;

// Uses of x, y before, inside and behind a region, so that gradients of both add up from all of
// them; the region takes integers and nothing besides, and hands an input and a leaf through.
struct Mixed {
  Variable x = leaf(12, {3, 4}, "x"), y = leaf(12, {3, 4}, "y"),
           weight = leaf(16, {4, 4}, "weight");
  Tensor ids = from_vector(std::vector<int32_t>{2, 0, 1});

  Variables region(std::span<const Variable> in) const {
    const Variable a = tanh(linear(in[0], weight)) * in[1], b = embedding(weight, in[3].tensor());
    const Variable c = a + b;
    return {c, in[1], {}, c, weight, mul(a, in[4]), Variable(in[3].tensor())};
  }
  Variable loss(bool again) const {
    const Variable p = gelu(x), q = scale(y, 0.5);
    const Variable inputs[] = {p, q, {}, Variable(ids), p};
    const auto f = [this](std::span<const Variable> in) { return region(in); };
    const Variable before = mul(p, q);
    const Variables out = again ? recompute(f, inputs) : region(inputs);
    const Variable behind = mul(out[0], out[3]) + mul(out[1], p) + mul(out[5], q);
    return sum(linear(behind + before, out[4]));
  }
};

TEST(Recompute, TakesAndGivesAnyNumberWithTheBitsOfNoRegion) {
  const Mixed kept, again;
  const Variable a = kept.loss(false), b = again.loss(true);
  EXPECT_EQ(a.item(), b.item());
  backward(a);
  backward(b);
  for (auto member : {&Mixed::x, &Mixed::y, &Mixed::weight}) {
    EXPECT_EQ((kept.*member).grad().to_vector<float>(), (again.*member).grad().to_vector<float>())
        << (kept.*member).name();
  }
}

TEST(Recompute, HandsThroughWhatTheRegionHandsThrough) {
  const Mixed m;
  const Variable inputs[] = {m.x, m.y, {}, Variable(m.ids), m.x};
  const auto out = recompute([&](std::span<const Variable> in) { return m.region(in); }, inputs);
  EXPECT_EQ(out[1], m.y);
  EXPECT_FALSE(out[2].defined());
  EXPECT_EQ(out[3], out[0]);
  EXPECT_EQ(out[4], m.weight);
  EXPECT_FALSE(out[6].requires_grad());
}

TEST(Recompute, ResultsThatNobodyUsesCostNothing) {
  const Variable x = leaf(4, {4}, "x");
  const auto two = [](std::span<const Variable> in) {
    return Variables{scale(in[0], 2), tanh(in[0]), in[0].detach()};
  };
  const auto out = recompute(two, {&x, 1});
  backward(sum(out[0]));
  EXPECT_EQ(x.grad().to_vector<float>(), Floats(4, 2.0f));
}

TEST(Recompute, ARegionThatChangesIsNamed) {
  const Variable x = leaf(4, {4}, "x");
  int run = 0;
  const auto shrinks = [&](std::span<const Variable> in) {
    const Variable y = scale(in[0], 2);
    return run++ == 0 ? Variables{y} : Variables{slice(y, 0, 0, 2)};
  };
  const auto grows = [&](std::span<const Variable> in) {
    return Variables(static_cast<size_t>(++run), scale(in[0], 2));
  };
  const auto stops = [&](std::span<const Variable> in) {
    return Variables{run++ == 0 ? scale(in[0], 2) : in[0].detach()};
  };
  const auto message = [&](const Region& f) {
    run = 0;
    const Variable root = sum(recompute(f, {&x, 1})[0]);
    return test::error_of(ErrorKind::usage, [&] { backward(root); });
  };
  EXPECT_EQ(message(shrinks), "recompute: result 0 was (4), and is (2) the second time");
  EXPECT_EQ(message(grows), "recompute: the region gave 1 results, and 2 the second time");
  EXPECT_NE(message(stops).find("recorded nothing the second time"), std::string::npos);
}

TEST(Recompute, ItsSecondRunHasTheFirstOnesDeviceAndIsTimed) {
  std::vector<Device> devices;
  const Variable x = leaf(4, {4}, "x");
  Variable root;
  {
    const DeviceGuard guard(cpu(1));
    const auto note = [&](const Variable& h) {
      devices.push_back(current_device());
      return scale(h, 2);
    };
    root = sum(recompute(note, x));
  }
  const double before = recompute_seconds();
  backward(root);
  EXPECT_EQ(devices, (std::vector<Device>{cpu(1), cpu(1)}));
  EXPECT_GT(recompute_seconds(), before);
}

// Norms and activations keep nothing for what reads them within a unit's call.
TEST(Remake, ResultsOfNormsAndActivationsAreMadeAgain) {
  const auto run = [](bool remakes, uint64_t& held) {
    const Variable x = leaf(1024, {8, 128}, "x"), w = leaf(128 * 128, {128, 128}, "w"),
                   gain = leaf(128, {128}, "gain");
    const uint64_t before = pool(cpu()).ledger().held(Category::activations);
    const auto f = [&] {
      std::optional<RemakeScope> scope;
      if (remakes)
        scope.emplace();
      const Variable y = layernorm(x, gain, gain, 1e-5f);
      const Variable h = linear_activation(PointwiseOp::gelu_tanh, y, w, {});
      const Variable gated = silu_gate(linear(y, w), linear(y, w));
      return sum(linear(h, w) + linear(mul(gated, unary(PointwiseOp::silu, y)), w));
    };
    const Variable loss = f();
    held = pool(cpu()).ledger().held(Category::activations) - before;
    backward(loss);
    Floats all = x.grad().to_vector<float>();
    for (const Variable& p : {w, gain}) {
      const Floats more = p.grad().to_vector<float>();
      all.insert(all.end(), more.begin(), more.end());
    }
    return all;
  };
  uint64_t kept = 0, remade = 0;
  EXPECT_EQ(run(true, remade), run(false, kept));
  constexpr uint64_t whole = 8 * 128 * 4, statistics = 2 * 8 * 4;
  EXPECT_EQ(remade, 3 * whole + statistics + 4);  // the three products; the loss
  EXPECT_EQ(kept, 8 * whole + statistics + 4);    // y, its silu, h, its gelu, gate, x, gated, mul
}

TEST(Recompute, RefusesAResultFromOutside) {
  const Model model;
  const Variable outside = scale(model.input, 2);
  EXPECT_THROW(recompute([&](const Variable& x) { return x + outside; }, model.input), Error);
}

}  // namespace
}  // namespace sg

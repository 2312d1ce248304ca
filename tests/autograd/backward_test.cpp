// The backward engine: what reaches leaves, in which order, once or again, and what it says about
// mistakes.
#include "autograd/backward.h"

#include <gtest/gtest.h>

#include "autograd/ops.h"

namespace sg {
namespace {

Variable leaf(std::vector<float> values, const Shape& shape, std::string name = {}) {
  return Variable(from_vector(values, shape), true, std::move(name));
}
std::vector<float> values(const Tensor& x) {
  return x.to_vector<float>();
}
using Floats = std::vector<float>;

// Expects an error whose message contains every one of `parts`.
template <class F>
void expect_error(F&& f, std::initializer_list<const char*> parts) {
  try {
    f();
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    for (const char* part : parts)
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

TEST(Backward, AddsOverTheUsesOfALeaf) {
  const Variable x = leaf({1, 2, 3}, {3}), y = leaf({4, 5, 6}, {3});
  const std::vector<Variable> reached = backward(sum(x * y + x));
  EXPECT_EQ(values(x.grad()), (Floats{5, 6, 7}));
  EXPECT_EQ(values(y.grad()), (Floats{1, 2, 3}));
  EXPECT_EQ(reached.size(), 2u);
}

TEST(Backward, AddsToAGradientThatIsThere) {
  Variable x = leaf({1, 2}, {2});
  backward(sum(x * x));
  backward(sum(x * x));
  EXPECT_EQ(values(x.grad()), (Floats{4, 8}));
  x.zero_grad();
  EXPECT_FALSE(x.grad().defined());
  backward(sum(x));
  EXPECT_EQ(values(x.grad()), (Floats{1, 1}));
}

TEST(Backward, TakesASeed) {
  const Variable x = leaf({1, 2}, {2});
  backward(x * x, {.seed = from_vector<float>({10, 100})});
  EXPECT_EQ(values(x.grad()), (Floats{20, 400}));
  backward(x, {.seed = from_vector<float>({1, 1})});  // a leaf is its own root
  EXPECT_EQ(values(x.grad()), (Floats{21, 401}));
}

TEST(Backward, RetainedGraphsRunAgain) {
  const Variable x = leaf({3}, {1}), y = x * x;
  backward(y, {.retain_graph = true});
  backward(y, {.retain_graph = true});
  backward(y);
  EXPECT_EQ(values(x.grad()), (Floats{18}));
}

TEST(Backward, ReportsReachedLeavesAndLeavesTheRestAlone) {
  const Variable used = leaf({1}, {1}, "used"), unused = leaf({1}, {1}, "unused"),
                 frozen(from_vector<float>({2}));
  const std::vector<Variable> reached = backward(used * frozen);
  ASSERT_EQ(reached.size(), 1u);
  EXPECT_EQ(reached[0], used);
  EXPECT_FALSE(unused.grad().defined());
  EXPECT_FALSE(frozen.grad().defined());
}

TEST(Backward, NothingIsRecordedUnderNoGrad) {
  const Variable x = leaf({1}, {1});
  Variable y, z;
  {
    NoGrad guard;
    y = x * x;
    WithGrad again;
    z = x * x;
  }
  EXPECT_FALSE(y.requires_grad());
  EXPECT_TRUE(z.requires_grad());
  EXPECT_FALSE((x * x).detach().requires_grad());
}

TEST(Backward, LongChainsNeedNoStack) {
  const Variable x = leaf({1}, {1});
  Variable y = x;
  for (int i = 0; i < 100'000; ++i)
    y = add(y, 1);
  backward(y, {.retain_graph = true});
  EXPECT_EQ(values(x.grad()), (Floats{1}));
}

TEST(Backward, SavedTensorsGoAsThePassGoesOn) {
  const Variable x = leaf(Floats(1000, 1.0f), {1000});
  uint64_t held = 0;
  {
    Variable y = x * x;
    y = y * y;
    y = sum(y * y);
    backward(y);
    held = pool(cpu()).ledger().held(Category::activations);
  }
  EXPECT_LT(held,
            4096u);  // the root and what lies around it; each of the products holds 4,000 bytes
}

// ---- custom functions

struct Cube {
  Saved x{};
  Tensor forward(const Variable& input) {
    x = Saved(input);
    return mul(input.tensor(), mul(input.tensor(), input.tensor()));
  }
  Gradients backward(const Tensor& g) const {
    return {scale(mul(g, mul(x.tensor(), x.tensor())), 3)};
  }
};

TEST(Backward, RunsAUsersOwnFunction) {
  const Variable x = leaf({2}, {1});
  backward(apply("cube", Cube{}, x));
  EXPECT_EQ(values(x.grad()), (Floats{12}));
}

TEST(Backward, ChecksAUsersGradients) {
  const Variable x = leaf({1, 2}, {2});
  const auto with = [&](Gradients gradients) {
    return record(
        "mine", scale(x.tensor(), 1), {x}, [gradients](const Tensor&) { return gradients; });
  };
  const Tensor seed = from_vector<float>({1, 1});
  expect_error(
      [&] {
        backward(with({from_vector<float>({1, 1, 1})}), {.seed = seed});
      },
      {"mine", "(3)", "(2)"});
  expect_error(
      [&] {
        backward(with({from_vector<double>({1, 1})}), {.seed = seed});
      },
      {"mine", "f64", "f32"});
  expect_error([&] { backward(with({}), {.seed = seed}); }, {"mine", "0 gradients for 1 inputs"});
}

// ---- how leaves get their gradients

TEST(Gradients, AreWrittenIntoTheProvidersBuffer) {
  Variable weight = leaf({1, 2, 3, 4}, {2, 2});
  const Tensor bucket = full({6}, -7);
  int asked = 0;
  weight.set_gradient_buffer([&] { return ++asked, bucket.slice(0, 1, 5).reshape({2, 2}); });
  const Variable x(from_vector<float>({1, 10}, {1, 2}));
  backward(sum(linear(x, weight) + linear(x, weight)));
  EXPECT_EQ(values(bucket), (Floats{-7, 2, 20, 2, 20, -7}));
  EXPECT_EQ(weight.grad().storage(), bucket.storage());
  EXPECT_EQ(asked, 1);
  backward(sum(linear(x, weight)));  // a pass starts afresh
  EXPECT_EQ(values(bucket), (Floats{-7, 1, 10, 1, 10, -7}));
}

TEST(Gradients, AProvidersBufferMustFit) {
  Variable weight = leaf({1, 2}, {2}, "block.gain");
  weight.set_gradient_buffer([] { return empty({3}); });
  expect_error([&] { backward(sum(weight * weight)); }, {"block.gain", "(3)", "(2)"});
}

TEST(Gradients, AreAdoptedWithoutACopyAndBookedAsGradients) {
  const Variable x = leaf({1, 2}, {2});
  const void* made = nullptr;
  const Variable y = record("made", clone(x.tensor()), {x}, [&](const Tensor& g) -> Gradients {
    Tensor gradient = scale(g, 2);
    made = gradient.view().data;
    return {std::move(gradient)};
  });
  backward(y, {.seed = from_vector<float>({1, 1})});
  EXPECT_EQ(x.grad().view().data, made);
  EXPECT_EQ(x.grad().storage()->category(), Category::gradients);
}

TEST(Gradients, OfAResultAreNotOverwrittenWhileSomebodyHoldsThem) {
  const Variable x = leaf({1, 2, 3, 4}, {2, 2}), w = leaf({1, 2, 2, 1}, {2, 2}),
                 gain = leaf({1, 2}, {2});
  for (const Variable& y : {linear_activation(PointwiseOp::gelu, x, w, {}),
                            layernorm(x, gain, {}, 1e-5f),
                            rmsnorm(x, gain, 1e-5f),
                            layernorm(x, x, gain, {}, 1e-5f).y}) {
    Tensor kept;
    const Variable z = record("keep", clone(y.tensor()), {y}, [&](const Tensor& g) -> Gradients {
      kept = scale(g, 3);
      return {kept};
    });
    backward(z, {.seed = from_vector<float>({1, 2, 3, 4}, {2, 2})});
    EXPECT_EQ(values(kept), (Floats{3, 6, 9, 12}));
  }
}

TEST(Gradients, AreNeverSharedBetweenLeaves) {
  const Variable a = leaf({1, 2}, {2}), b = leaf({3, 4}, {2});
  backward(a + b, {.seed = from_vector<float>({1, 1})});
  EXPECT_NE(a.grad().storage(), b.grad().storage());
}

TEST(Gradients, LazyOnesAreOnlyComputedWhereWanted) {
  const Variable x = leaf({1, 2}, {2}), frozen(from_vector<float>({1, 2}));
  int written = 0;
  const auto writer = [&](const Tensor& out, bool accumulate) {
    ++written;
    if (!accumulate)
      fill_(out, 1);
  };
  const auto lazily = [&] {
    return record("lazy", clone(x.tensor()), {x, frozen}, [&](const Tensor& g) -> Gradients {
      return {{g.shape(), g.dtype(), writer}, {g.shape(), g.dtype(), writer}};
    });
  };
  backward(lazily(), {.seed = from_vector<float>({1, 1})});
  EXPECT_EQ(written, 1);
  EXPECT_EQ(values(x.grad()), (Floats{1, 1}));
}

TEST(Gradients, AHookFiresOnceWithTheLastContribution) {
  Variable tied = leaf({2}, {1}, "tied"), other = leaf({3}, {1}, "other");
  std::vector<std::string> order;
  const auto note = [&](const Variable& x) {
    order.push_back(x.name() + "=" + std::to_string(static_cast<int>(values(x.grad())[0])));
  };
  const uint64_t id = tied.on_gradient(note);
  other.on_gradient(note);
  const auto loss = [&] {
    return tied * (other * tied);
  };  // tied's last contribution comes after other's
  backward(loss());
  EXPECT_EQ(order, (std::vector<std::string>{"other=4", "tied=12"}));
  tied.remove_hook(id);
  backward(loss());
  EXPECT_EQ(order.size(), 3u);
}

TEST(Gradients, AHookComesAfterTheOpHasReadItsWeights) {
  Variable x = leaf({1, 2}, {1, 2}), weight = leaf({1, 2, 3, 4}, {2, 2}, "weight");
  const auto storage = std::make_shared<Storage>(cpu(), 16, Category::parameters);
  const Tensor resident(storage, 0, {2, 2}, dense_strides({2, 2}), DType::f32);
  copy_(resident, weight.tensor());
  weight.set_tensor(resident);
  weight.on_gradient([&](const Variable&) { storage->release(); });  // as ZeRO-3 does
  backward(sum(linear(x, weight)));
  EXPECT_EQ(values(x.grad()), (Floats{4, 6}));
  EXPECT_FALSE(storage->resident());
}

// ---- mistakes

TEST(Mistakes, BackwardTwice) {
  const Variable x = leaf({1}, {1}), y = x * x;
  backward(y);
  expect_error([&] { backward(y); }, {"mul", "retain_graph"});
}

TEST(Mistakes, BackwardTwiceThroughASharedPart) {
  const Variable x = leaf({1}, {1}), shared = x * x;
  backward(add(shared, 1));
  expect_error([&] { backward(scale(shared, 2)); }, {"mul", "retain_graph"});
}

TEST(Mistakes, ASavedTensorChangedInPlace) {
  const Variable x = leaf({1}, {1}, "wte.weight"), y = x * x;
  fill_(x.tensor(), 5);
  expect_error([&] { backward(y); }, {"mul", "'wte.weight'", "in place"});
}

TEST(Mistakes, NoGradientPath) {
  const Variable x(from_vector<float>({1}));
  expect_error([&] { backward(x * x); }, {"no gradient path"});
  expect_error([&] { backward(Variable()); }, {"undefined"});
}

TEST(Mistakes, ASeedThatDoesntFit) {
  const Variable x = leaf({1, 2}, {2});
  expect_error([&] { backward(x * x); }, {"(2)", "seed"});
  expect_error([&] { backward(x * x, {.seed = from_vector<float>({1, 2, 3})}); }, {"(3)", "(2)"});
  expect_error([&] { backward(x * x, {.seed = from_vector<double>({1, 2})}); }, {"f64", "f32"});
}

TEST(Mistakes, GradientsOfIntegersAndOfResults) {
  expect_error([] { Variable(from_vector<int64_t>({1}), true, "ids"); }, {"ids", "i64"});
  Variable y = leaf({1}, {1}) * leaf({1}, {1});
  expect_error([&] { y.on_gradient({}); }, {"only leaves"});
  expect_error([&] { y.set_requires_grad(false); }, {"mul", "not a leaf"});
}

}  // namespace
}  // namespace sg

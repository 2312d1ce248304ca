// Recompute draws what the first run drew, with no help from its caller: op ids, batch position,
// step.
#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "autograd/ops.h"
#include "autograd/recompute.h"
#include "nn/layers.h"
#include "nn/micro_step.h"

namespace sg::nn {
namespace {

using Region = std::function<Variable(const Variable&)>;

struct Net : Module {
  Net() : a(0.5f), b(0.3f) {
    add("a", a);
    add("b", b);
  }
  // `a` twice, so that its calls must be counted on.
  Variable inner(const Variable& x) { return mul(a.forward(x), a.forward(x)); }
  Variable outer(const Variable& x) { return b.forward(inner(b.forward(x))); }
  Dropout a, b;
};

std::vector<float> values_of(int n) {
  std::vector<float> values;
  for (int i = 0; i < n; ++i)
    values.push_back(0.25f * static_cast<float>(i % 17) - 1.5f);
  return values;
}

// The loss and the input's gradient. `region` is entered inside of a micro-step; backward runs
// where `backward_where` puts it.
std::vector<float> run(const std::function<Variable(Net&, const Variable&)>& f,
                       const std::function<void(const std::function<void()>&)>& backward_where) {
  Net net;
  const Variable x(from_vector(values_of(512), {8, 64}), true);
  Variable loss;
  {
    const MicroStepScope scope(7, 3, 24);
    loss = sum(f(net, net.a.forward(x)));
  }
  backward_where([&] { backward(loss); });
  std::vector<float> all = x.grad().to_vector<float>();
  all.push_back(loss.item());
  return all;
}

const auto outside = [](const std::function<void()>& go) { go(); };
const auto in_another_micro_step = [](const std::function<void()>& go) {
  const MicroStepScope scope(8, 4, 0);
  go();
};

Variable plain(Net& net, const Variable& x) {
  return net.outer(net.outer(x));
}
Variable regions(Net& net, const Variable& x) {
  const Region region = [&](const Variable& y) { return net.outer(y); };
  return recompute(region, recompute(region, x));
}
Variable nested(Net& net, const Variable& x) {
  const Region inner = [&](const Variable& y) { return net.inner(y); };
  const Region middle = [&, inner](const Variable& y) {
    return net.b.forward(recompute(inner, net.b.forward(y)));
  };
  return recompute(
      [&, middle](const Variable& y) { return recompute(middle, recompute(middle, y)); }, x);
}

TEST(RecomputeRandom, RegionsHaveThePlainRunsBitsWhereverBackwardRuns) {
  const std::vector<float> expected = run(plain, outside);
  EXPECT_EQ(run(regions, outside), expected);
  EXPECT_EQ(run(regions, in_another_micro_step), expected);
  EXPECT_EQ(run(nested, outside), expected);
  EXPECT_EQ(run(nested, in_another_micro_step), expected);
}

TEST(RecomputeRandom, ThePlaceAfterwardsIsWhatItWas) {
  Net net;
  const MicroStepScope scope(7, 3, 24);
  const Variable x(from_vector(values_of(64)), true);
  const Variable loss = sum(recompute([&](const Variable& y) { return net.outer(y); }, x));
  const auto calls = current_micro_step()->calls;
  backward(loss);
  EXPECT_EQ(current_micro_step()->calls, calls);
  EXPECT_EQ(current_micro_step()->first_sample, 24u);
}

}  // namespace
}  // namespace sg::nn

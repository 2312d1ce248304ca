// GPT-2 as the chain of its units: what an engine that calls units itself gets.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "autograd/backward.h"
#include "autograd/hooks.h"
#include "models/gpt2/gpt2.h"
#include "nn/micro_step.h"

namespace sg::models {
namespace {

const Gpt2Options options{
    .layers = 3, .heads = 2, .width = 16, .context = 8, .vocab = 31, .dropout = 0.2f, .seed = 5};

Tensor ids(int first) {
  std::vector<int32_t> values;
  for (int i = 0; i < 16; ++i)
    values.push_back((first + 7 * i) % 31);
  return from_vector(values, {2, 8});
}

std::vector<Variable> chain(const std::vector<Unit>& units,
                            const Tensor& tokens,
                            const Tensor& targets) {
  std::vector<Variable> flow = {Variable(tokens)};
  for (size_t u = 0; u < units.size(); ++u) {
    if (u + 1 == units.size())
      flow.emplace_back(targets);
    flow = units[u].forward(flow);
  }
  return flow;
}

TEST(Gpt2Units, TheChainOfUnitsHasTheModelsBits) {
  Gpt2 whole(options), parts(options);
  Variable expected, loss;
  {
    const nn::MicroStepScope scope(1, 2, 4);
    expected = whole.loss(ids(1), ids(3));
  }
  {
    const nn::MicroStepScope scope(1, 2, 4);
    const std::vector<Variable> out = chain(parts.units(), ids(1), ids(3));
    ASSERT_EQ(out.size(), 1u);
    loss = out[0];
  }
  EXPECT_EQ(loss.item(), expected.item());
  backward(expected);
  backward(loss);
  const auto a = whole.parameters(), b = parts.parameters();
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i)
    EXPECT_EQ(a[i].grad().to_vector<float>(), b[i].grad().to_vector<float>()) << a[i].name();
}

TEST(Gpt2Units, CallsOfTheChainRunTheirHooks) {
  Gpt2 model(options);
  model.eval();
  const std::vector<Unit> units = model.units();
  std::string calls;
  for (const Unit& unit : units) {
    unit.hooks->before_forward = [&calls, name = unit.name] { calls += name + " "; };
    unit.hooks->after_backward = [&calls, name = unit.name] { calls += "/" + name + " "; };
  }
  backward(chain(units, ids(1), ids(3))[0]);
  EXPECT_EQ(calls,
            "embeddings block0 block1 block2 head /head /block2 /block1 /block0 /embeddings ");
}

TEST(Gpt2Units, ThoseThatTakeSomethingElseRefuseIt) {
  Gpt2 model(options);
  for (const Unit& unit : model.units()) {
    EXPECT_THROW(unit.forward(std::vector<Variable>{}), Error) << unit.name;
  }
}

}  // namespace
}  // namespace sg::models

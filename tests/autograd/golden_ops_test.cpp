// Single ops, forward and backward, against PyTorch's values (tests/golden/make_golden.py says how
// they were made).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "autograd/ops.h"
#include "core/io/safetensors.h"

namespace {

using namespace sg;

const SafetensorsReader& golden() {
  static const SafetensorsReader reader(SG_SOURCE_DIR "/tests/golden/ops_golden.safetensors");
  return reader;
}

Tensor load(const std::string& name) {
  const auto* entry = golden().find(name);
  if (!entry)
    throw std::runtime_error("no golden tensor " + name);
  return golden().read(*entry);
}

// Largest difference over the largest expected value.
double relative_error(const Tensor& actual, const Tensor& expected) {
  const auto a = actual.to_vector<float>(), e = expected.to_vector<float>();
  if (a.size() != e.size())
    return INFINITY;
  double difference = 0, largest = 0;
  for (size_t i = 0; i < e.size(); ++i) {
    difference = std::max(difference, std::abs(double{a[i]} - e[i]));
    largest = std::max(largest, std::abs(double{e[i]}));
  }
  return difference / largest;
}

struct Case {
  std::string op, inputs, output;  // inputs: names, one blank between them
  std::function<Variable(const std::vector<Variable>&)> forward;
};
void PrintTo(const Case& c, std::ostream* out) {
  *out << c.op;
}

Variable attend(const std::vector<Variable>& in, bool causal) {
  return attention(
      in[0], in[1], in[2], {.causal = causal, .scale = 0, .mask = {}, .dropout = 0, .random = {}});
}

Variable rotate(const Variable& x) {  // (b,h,t,d), ours takes (b,t,h,d)
  std::vector<int64_t> positions(static_cast<size_t>(x.size(2)));
  for (size_t t = 0; t < positions.size(); ++t)
    positions[t] = static_cast<int64_t>(t);
  return transpose(rope(transpose(x, 1, 2), from_vector(positions), {}), 1, 2);
}

using In = std::vector<Variable>;
const std::vector<Case> cases = {
    {"gelu_tanh", "x", "y", [](const In& in) { return gelu_tanh(in[0]); }},
    {"gelu_erf", "x", "y", [](const In& in) { return gelu(in[0]); }},
    {"silu", "x", "y", [](const In& in) { return silu(in[0]); }},
    {"softmax", "x", "y", [](const In& in) { return softmax(in[0]); }},
    {"layernorm",
     "x gain bias",
     "y",
     [](const In& in) { return layernorm(in[0], in[1], in[2], 1e-5f); }},
    {"rmsnorm", "x gain", "y", [](const In& in) { return rmsnorm(in[0], in[1], 1e-5f); }},
    {"attention", "q k v", "o", [](const In& in) { return attend(in, true); }},
    {"attention_full", "q k v", "o", [](const In& in) { return attend(in, false); }},
    {"cross_entropy",
     "logits",
     "loss",
     [](const In& in) { return cross_entropy(in[0], load("cross_entropy.targets")); }},
    {"embedding",
     "table",
     "y",
     [](const In& in) { return embedding(in[0], load("embedding.ids")); }},
    {"rotary", "x", "y", [](const In& in) { return rotate(in[0]); }},
};

class GoldenOps : public testing::TestWithParam<Case> {};

TEST_P(GoldenOps, AgreeWithPyTorch) {
  const Case& c = GetParam();
  std::vector<std::string> names;
  for (size_t begin = 0, end; begin < c.inputs.size(); begin = end + 1) {
    end = std::min(c.inputs.find(' ', begin), c.inputs.size());
    names.push_back(c.inputs.substr(begin, end - begin));
  }
  std::vector<Variable> inputs;
  for (const std::string& name : names)
    inputs.emplace_back(load(c.op + "." + name), true, name);

  const Variable out = c.forward(inputs);
  EXPECT_LT(relative_error(out.tensor(), load(c.op + "." + c.output)), 2e-6) << c.output;
  const Tensor given = load(c.op + ".d" + c.output);
  backward(out, {.seed = given.reshape(out.shape()), .retain_graph = false});
  for (size_t i = 0; i < names.size(); ++i)
    EXPECT_LT(relative_error(inputs[i].grad(), load(c.op + ".d" + names[i])), 5e-6)
        << "d" << names[i];
}

INSTANTIATE_TEST_SUITE_P(Ops, GoldenOps, testing::ValuesIn(cases), [](const auto& info) {
  return info.param.op;
});

}  // namespace

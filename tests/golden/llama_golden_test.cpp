// Every variant of Llama against Hugging Face's, with the same weights (tests/golden/make_llama.py
// made the file).
#include <gtest/gtest.h>

#include <cmath>
#include <ostream>

#include "autograd/backward.h"
#include "core/io/safetensors.h"
#include "core/ops.h"
#include "models/llama/llama.h"

namespace sg::models {
namespace {

const nn::StateDict& golden() {
  static const nn::StateDict values = [] {
    const SafetensorsReader reader(SG_SOURCE_DIR "/tests/golden/llama_golden.safetensors");
    nn::StateDict tensors;
    for (const auto& entry : reader.entries())
      tensors.emplace(entry.name, reader.read(entry));
    return tensors;
  }();
  return values;
}

struct Variant {
  std::string name;
  void (*change)(LlamaOptions& options);
};

RopeOptions stretched(RopeScaling scaling, float fast, float magnitude) {
  return {.scaling = scaling,
          .factor = 8,
          .original_context = 128,
          .fast = fast,
          .magnitude = magnitude};
}

const Variant variants[] = {
    {"plain", [](LlamaOptions& o) { o.kv_heads = 0; }},
    {"grouped", [](LlamaOptions&) {}},
    {"tied", [](LlamaOptions& o) { o.tied = true; }},
    {"biases", [](LlamaOptions& o) { o.qkv_bias = o.out_bias = o.mlp_bias = true; }},
    {"qwen2", [](LlamaOptions& o) { o.qkv_bias = true; }},
    {"qwen3", [](LlamaOptions& o) { o.qk_norm = true; }},
    {"llama3", [](LlamaOptions& o) { o.rope = stretched(RopeScaling::llama3, 4, 1); }},
    {"yarn",
     [](LlamaOptions& o) { o.rope = stretched(RopeScaling::yarn, 32, 0.1f * std::log(8.0f) + 1); }},
    {"window", [](LlamaOptions& o) { o.window = 3; }},
};

std::unique_ptr<Llama> model_of(const Variant& variant) {
  LlamaOptions o{.layers = 2,
                 .heads = 4,
                 .width = 16,
                 .hidden = 24,
                 .context = 16,
                 .vocab = 41,
                 .kv_heads = 2,
                 .head_width = 8};
  variant.change(o);
  auto model = std::make_unique<Llama>(o);
  EXPECT_EQ(model->parameter_count(), llama_parameters(o));
  nn::StateDict values;
  const std::string prefix = variant.name + "/value.";
  for (const auto& [name, tensor] : golden()) {
    if (name.rfind(prefix, 0) == 0)
      values.emplace(name.substr(prefix.size()), tensor);
  }
  model->load_state(values);
  return model;
}

double norm(const std::vector<float>& x) {
  double sum = 0;
  for (const float v : x)
    sum += static_cast<double>(v) * v;
  return std::sqrt(sum);
}
double distance(std::vector<float> a, const std::vector<float>& b) {
  for (size_t i = 0; i < a.size(); ++i)
    a[i] -= b[i];
  return norm(a);
}

void PrintTo(const Variant& variant, std::ostream* out) {
  *out << variant.name;
}

class LlamaGolden : public testing::TestWithParam<Variant> {};

TEST_P(LlamaGolden, LogitsAreHuggingFaces) {
  const auto wanted = golden().at(GetParam().name + "/logits").to_vector<float>();
  NoGrad guard;
  const auto llama = model_of(GetParam());
  const auto ours = llama->logits(golden().at("tokens")).tensor().to_vector<float>();
  ASSERT_EQ(ours.size(), wanted.size());
  float largest = 0;
  for (const float v : wanted)
    largest = std::max(largest, std::abs(v));
  for (size_t i = 0; i < ours.size(); ++i)
    ASSERT_NEAR(ours[i], wanted[i], 1e-5 * largest) << i;
}

TEST_P(LlamaGolden, LossAndEveryGradientAreHuggingFaces) {
  const std::string name = GetParam().name;
  const auto llama = model_of(GetParam());
  const Variable loss = llama->loss(golden().at("tokens"), golden().at("targets"));
  const float wanted_loss = golden().at(name + "/loss").item<float>();
  EXPECT_NEAR(loss.item(), wanted_loss, 1e-6 * wanted_loss);
  backward(loss);
  const auto gradient_of = [&](const Variable& p) {
    return golden().at(name + "/grad." + p.name()).to_vector<float>();
  };
  double global = 0;
  for (const Variable& p : llama->parameters())
    global = std::hypot(global, norm(gradient_of(p)));
  for (const Variable& p : llama->parameters()) {
    const auto wanted = gradient_of(p);
    const double bound = 1e-4 * std::max(norm(wanted), 1e-6 * global);
    EXPECT_LE(distance(p.grad().to_vector<float>(), wanted), bound) << p.name();
  }
}

INSTANTIATE_TEST_SUITE_P(Variants, LlamaGolden, testing::ValuesIn(variants), [](const auto& info) {
  return info.param.name;
});

TEST(LlamaPresets, HaveThePublishedNumbersOfParameters) {
  const std::pair<std::string, int64_t> published[] = {{"llama2-7b", 6738415616},
                                                       {"llama3-8b", 8030261248},
                                                       {"llama3.2-1b", 1235814400},
                                                       {"mistral-7b-v0.1", 7241732096},
                                                       {"qwen2.5-0.5b", 494032768},
                                                       {"qwen3-0.6b", 596049920},
                                                       {"smollm2-135m", 134515008}};
  const DeviceGuard guard(meta(1));
  for (const auto& [size, count] : published) {
    const LlamaOptions options = llama_preset(size);
    EXPECT_EQ(llama_parameters(options), count) << size;
    EXPECT_EQ(Llama(options).parameter_count(), count) << size;
  }
}

}  // namespace
}  // namespace sg::models

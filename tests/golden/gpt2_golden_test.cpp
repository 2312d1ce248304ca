// GPT-2 against Hugging Face's, with the same weights (tests/golden/make_golden.py made the files).
#include <gtest/gtest.h>

#include <cmath>

#include "autograd/backward.h"
#include "core/io/safetensors.h"
#include "core/ops.h"
#include "dist/engine.h"
#include "dist/launch.h"
#include "models/gpt2/gpt2.h"
#include "models/gpt2/weights.h"

namespace sg::models {
namespace {

const std::string folder = SG_SOURCE_DIR "/tests/golden/";
constexpr int64_t updates = 10;

nn::StateDict read_all(const std::string& file) {
  const SafetensorsReader reader(folder + file);
  nn::StateDict tensors;
  for (const auto& entry : reader.entries())
    tensors.emplace(entry.name, reader.read(entry));
  return tensors;
}

const nn::StateDict& golden() {
  static const nn::StateDict values = read_all("gpt2_golden.safetensors");
  return values;
}

// What Hugging Face has for this parameter, as our layer has it.
Tensor as_ours(const Variable& p, const nn::StateDict& theirs, const std::string& prefix = {}) {
  const WeightPart part = gpt2_weights({}).parts(p.name(), p.shape())[0];
  const Tensor& value = theirs.at(prefix + part.name);
  return part.transposed ? value.transposed() : value;
}

std::unique_ptr<Gpt2> model() {
  auto model = std::make_unique<Gpt2>(
      Gpt2Options{.layers = 2, .heads = 2, .width = 32, .context = 16, .vocab = 97});
  const nn::StateDict theirs = read_all("gpt2_weights.safetensors");
  nn::StateDict ours;
  for (const Variable& p : model->parameters())
    ours[p.name()] = as_ours(p, theirs);
  model->load_state(ours);
  return model;
}

Tensor batch(const char* name, int64_t i) {
  return contiguous(golden().at(name).select(0, i));
}

double norm(const std::vector<float>& x) {
  double sum = 0;
  for (const float v : x)
    sum += static_cast<double>(v) * v;
  return std::sqrt(sum);
}
std::vector<float> difference(std::vector<float> a, const std::vector<float>& b) {
  for (size_t i = 0; i < a.size(); ++i)
    a[i] -= b[i];
  return a;
}
double largest(const std::vector<float>& x) {
  double largest = 0;
  for (const float v : x)
    largest = std::max(largest, std::abs(static_cast<double>(v)));
  return largest;
}

TEST(Golden, Gpt2LogitsAreHuggingFaces) {
  const std::vector<float> wanted = golden().at("logits").to_vector<float>();
  NoGrad guard;
  const std::vector<float> ours = model()->logits(batch("tokens", 0)).tensor().to_vector<float>();
  ASSERT_EQ(ours.size(), wanted.size());
  EXPECT_LE(largest(difference(ours, wanted)), 1e-5 * largest(wanted));
}

TEST(Golden, Gpt2LossAndEveryGradientAreHuggingFaces) {
  const auto gpt2 = model();
  const Variable loss = gpt2->loss(batch("tokens", 0), batch("targets", 0));
  const float wanted_loss = golden().at("loss").item<float>();
  EXPECT_NEAR(loss.item(), wanted_loss, 1e-6 * wanted_loss);
  backward(loss);

  double global = 0;
  for (const auto& [name, tensor] : golden())
    if (name.rfind("grad.", 0) == 0)
      global = std::hypot(global, norm(tensor.to_vector<float>()));
  for (const Variable& p : gpt2->parameters()) {
    const auto wanted = as_ours(p, golden(), "grad.").to_vector<float>();
    const double bound = 1e-4 * std::max(norm(wanted), 1e-6 * global);
    EXPECT_LE(norm(difference(p.grad().to_vector<float>(), wanted)), bound) << p.name();
  }
}

struct Training {
  std::vector<float> losses;
  std::vector<double> norms;
};

// losses[i]: of batch i after i updates.
Training train(double clip) {
  Training run;
  dist::run_threads(1, [&](dist::Comm& comm) {
    const auto gpt2 = model();
    const dist::Options options{.engine = dist::EngineKind::none, .lr = 1e-3, .clip = clip};
    const auto engine = dist::initialize(gpt2->units(), options, comm);
    for (int64_t i = 0; i <= updates; ++i) {
      const Variable loss =
          engine->forward([&] { return gpt2->loss(batch("tokens", i), batch("targets", i)); });
      run.losses.push_back(loss.item());
      engine->backward(loss);
      run.norms.push_back(engine->step().norm);
    }
  });
  return run;
}

void expect_losses(const std::vector<float>& ours, const std::vector<float>& wanted) {
  ASSERT_EQ(ours.size(), wanted.size());
  for (size_t i = 0; i < ours.size(); ++i)
    EXPECT_NEAR(ours[i], wanted[i], 1e-5 * wanted[i]) << "after " << i;
}

TEST(Golden, TenAdamWStepsHavePyTorchsLosses) {
  expect_losses(train(0).losses, golden().at("losses").to_vector<float>());
}

TEST(Golden, TenClippedStepsHavePyTorchsLossesAndNorms) {
  const Training run = train(0.5);
  expect_losses(run.losses, golden().at("losses_clip").to_vector<float>());
  const std::vector<float> norms = golden().at("norms").to_vector<float>();
  for (size_t i = 0; i < norms.size(); ++i)
    EXPECT_NEAR(run.norms[i], norms[i], 1e-4 * norms[i]) << "step " << i;
}

}  // namespace
}  // namespace sg::models

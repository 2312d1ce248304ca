// Sizes, names and units of GPT-2; values are held against Hugging Face's in tests/golden.
#include "models/gpt2/gpt2.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "autograd/backward.h"
#include "core/products.h"

namespace sg::models {
namespace {

int64_t parameters_of(Gpt2Options options) {
  DeviceGuard device(meta());
  return Gpt2(options).parameter_count();
}

TEST(Gpt2, PresetsHaveThePapersSizes) {
  EXPECT_EQ(parameters_of(gpt2_preset("124m")), 124439808);
  EXPECT_EQ(parameters_of(gpt2_preset("350m")), 354823168);
  EXPECT_EQ(parameters_of(gpt2_preset("774m")), 774030080);
  EXPECT_EQ(parameters_of(gpt2_preset("1558m")), 1557611200);
  Gpt2Options nano = gpt2_preset("nano");
  nano.vocab = 65;
  EXPECT_EQ(parameters_of(nano), 65 * 128 + 64 * 128 + 4 * (12 * 128 * 128 + 2 * 128) + 128);
}

TEST(Gpt2, UntyingAddsOneTable) {
  Gpt2Options options = gpt2_preset("124m");
  options.tied = false;
  EXPECT_EQ(parameters_of(options), 124439808 + 50257 * 768);
}

TEST(Gpt2, AnUnknownSizeNamesTheKnownOnes) {
  try {
    gpt2_preset("125m");
    FAIL();
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(),
                 "gpt2: there is no size \"125m\"; sizes are nano, 124m, 350m, 774m, 1558m");
  }
}

TEST(Gpt2, UnitsAreEmbeddingsBlocksAndHead) {
  DeviceGuard device(meta());
  const Gpt2 model({.layers = 2, .heads = 2, .width = 8, .context = 4, .vocab = 11});
  const std::vector<Unit> units = model.units();
  ASSERT_EQ(units.size(), 4u);
  EXPECT_EQ(units[0].name, "embeddings");
  EXPECT_EQ(units[2].name, "block1");
  EXPECT_EQ(units[2].parameters.size(), 12u);
  EXPECT_EQ(units[3].parameters.front(), units[0].parameters.front()) << "the tied classifier";
  EXPECT_EQ(units[1].parameters[2].name(), "block0.attention.qkv.weight");
}

TEST(Gpt2, TokensMustFitTheContext) {
  DeviceGuard device(meta());
  Gpt2 model({.layers = 1, .heads = 1, .width = 8, .context = 4, .vocab = 11});
  EXPECT_THROW(model.logits(zeros({1, 5}, DType::i32)), Error);
  EXPECT_EQ(model.logits(zeros({2, 3}, DType::i32)).shape(), (Shape{2, 3, 11}));
  EXPECT_EQ(model.last_logits(zeros({2, 3}, DType::i32)).shape(), (Shape{2, 11}));
}

std::vector<Product> products_of_a_step(const Gpt2Options& options, const Shape& tokens) {
  const DeviceGuard device(meta());
  Gpt2 model(options);
  const ProductScope scope;
  backward(model.loss(zeros(tokens, DType::i32), zeros(tokens, DType::i32)));
  return scope.products();
}

// 6·(parameters in products)·tokens, and 12·layers·width·length·tokens for attention, a half of it
// needed.
TEST(Gpt2, ProductsCountTheFlopsOfAStep) {
  double flops = 0;
  for (const Product& p : products_of_a_step(gpt2_preset("124m"), {2, 256}))
    flops += p.flops();
  const double matrices = 12.0 * 12 * 768 * 768 + 50257.0 * 768;
  EXPECT_DOUBLE_EQ(flops, 512 * (6 * matrices + 6.0 * 12 * 768 * 256));
}

// Three layers, two heads, 2 × 5 tokens: every product of a step is recorded, equal ones are
// counted.
TEST(Gpt2, ProductsAreThoseOfItsLayers) {
  const Gpt2Options options{.layers = 3, .heads = 2, .width = 8, .context = 6, .vocab = 11};
  std::set<std::string> found;
  for (const Product& p : products_of_a_step(options, {2, 5})) {
    found.insert(fmt::format("{} {}·({}{}, {})·({}, {}{}) ×{} {}",
                             p.op,
                             p.batch,
                             p.m,
                             p.transpose_a ? "ᵀ" : "",
                             p.k,
                             p.k,
                             p.n,
                             p.transpose_b ? "ᵀ" : "",
                             p.count,
                             p.share));
  }
  const std::set<std::string> expected = {
      // forward, dx and dw of qkv, of the two projections back to the width (attention's and the
      // MLP's), of the MLP up
      "matmul 1·(10, 8)·(8, 24ᵀ) ×3 1",
      "matmul 1·(10, 24)·(24, 8) ×3 1",
      "matmul 1·(24ᵀ, 10)·(10, 8) ×3 1",
      "matmul 1·(10, 8)·(8, 8ᵀ) ×3 1",
      "matmul 1·(10, 8)·(8, 8) ×3 1",
      "matmul 1·(8ᵀ, 10)·(10, 8) ×3 1",
      "matmul 1·(10, 8)·(8, 32ᵀ) ×3 1",
      "matmul 1·(10, 32)·(32, 8) ×3 1",
      "matmul 1·(32ᵀ, 10)·(10, 8) ×3 1",
      "matmul 1·(10, 32)·(32, 8ᵀ) ×3 1",
      "matmul 1·(10, 8)·(8, 32) ×3 1",
      "matmul 1·(8ᵀ, 10)·(10, 32) ×3 1",
      // scores and dP; mix and dq; dk and dv; each of three layers, batch 2 × 2 heads of width 4
      "attention 4·(5, 4)·(4, 5ᵀ) ×6 0.5",
      "attention 4·(5, 5)·(5, 4) ×6 0.5",
      "attention 4·(5ᵀ, 5)·(5, 4) ×6 0.5",
      // logits, dx, dw
      "classifier 1·(10, 8)·(8, 11ᵀ) ×1 1",
      "classifier 1·(10, 11)·(11, 8) ×1 1",
      "classifier 1·(11ᵀ, 10)·(10, 8) ×1 1",
  };
  EXPECT_EQ(found, expected);
}

}  // namespace
}  // namespace sg::models

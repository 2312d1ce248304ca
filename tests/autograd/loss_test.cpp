// The fused classifier's gradients are made in forward for the seed that is expected; that must show in speed alone.
#include <gtest/gtest.h>

#include "autograd/ops.h"

namespace sg {
namespace {

using Floats = std::vector<float>;

struct Head {
  Variable x = Variable(random_normal({6, 8}, {.seed = 1}), true, "x");
  Variable weight = Variable(random_normal({5, 8}, {.seed = 2}), true, "weight");
  Tensor targets = from_vector<int64_t>({0, 4, -1, 2, 2, 1});

  Variable loss() const { return classifier_loss(x, weight, targets); }
  Floats gradients() const {
    Floats all = x.grad().to_vector<float>();
    for (float g : weight.grad().to_vector<float>()) all.push_back(g);
    return all;
  }
};

Tensor seed_of(float value) { return full({}, value); }

TEST(ClassifierLoss, AgreesWithItsParts) {
  const Head fused, parts;
  const Variable a = fused.loss(), b = cross_entropy(linear(parts.x, parts.weight), parts.targets);
  EXPECT_NEAR(a.item(), b.item(), 1e-6);
  backward(a);
  backward(b);
  const Floats found = fused.gradients(), expected = parts.gradients();
  for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-6) << i;
}

TEST(ClassifierLoss, AnExpectedSeedGivesThatSeedsGradients) {
  const Head expected, unexpected;
  const ExpectedSeed scope(1024);
  EXPECT_EQ(expected_seed(), 1024);
  backward(expected.loss(), {.seed = seed_of(1024)});
  {
    const ExpectedSeed other(0.5f);
    backward(unexpected.loss(), {.seed = seed_of(1024)});
  }
  EXPECT_EQ(expected.gradients(), unexpected.gradients());  // powers of two: a late multiplication is exact
}

TEST(ClassifierLoss, TheWeightsGradientIsHandedOverWithoutACopy) {
  const Head head;
  const Variable loss = head.loss();
  pool(cpu()).reset_peaks();
  const uint64_t before = pool(cpu()).ledger().total();
  backward(loss);
  const Ledger after = pool(cpu()).ledger();
  EXPECT_LT(after.total_peak() - before, head.weight.tensor().bytes());  // the seed
  EXPECT_EQ(after.held(Category::gradients), head.weight.tensor().bytes() + head.x.tensor().bytes());
}

TEST(ClassifierLoss, NoGradientsAreMadeWhereNoneAreWanted) {
  const Head head;
  const uint64_t before = pool(cpu()).ledger().held(Category::gradients);
  NoGrad guard;
  const Variable loss = head.loss();
  EXPECT_FALSE(loss.requires_grad());
  EXPECT_EQ(pool(cpu()).ledger().held(Category::gradients), before);
}

TEST(ClassifierLoss, ARetainedGraphGivesTheSameAgain) {
  const Head head;
  const Variable loss = head.loss();
  backward(loss, {.retain_graph = true});
  Floats twice = head.gradients();
  for (float& g : twice) g += g;
  backward(loss);
  EXPECT_EQ(head.gradients(), twice);
}

TEST(ClassifierLoss, OfIgnoredRowsAloneIsZero) {
  Head head;
  head.targets = full({6}, -1, DType::i64);
  const Variable loss = head.loss();
  EXPECT_EQ(loss.item(), 0);
  backward(loss);
  EXPECT_EQ(head.gradients(), Floats(6 * 8 + 5 * 8, 0.0f));
}

TEST(ClassifierLoss, ATiedWeightTakesBothContributions) {
  const Head head, parts;
  const Tensor ids = from_vector<int64_t>({0, 1, 2, 3, 4, 0});
  const auto tied = [&](const Head& h) { return h.x + embedding(h.weight, ids); };
  int complete = 0;
  Variable weight = head.weight;
  weight.on_gradient([&](const Variable&) { ++complete; });
  backward(classifier_loss(tied(head), head.weight, head.targets));
  backward(cross_entropy(linear(tied(parts), parts.weight), parts.targets));
  EXPECT_EQ(complete, 1);
  const Floats found = head.gradients(), expected = parts.gradients();
  for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-6) << i;
}

TEST(ClassifierLoss, TargetsMustFitTheRows) {
  Head head;
  head.targets = from_vector<int64_t>({0, 1});
  EXPECT_THROW(head.loss(), Error);
}

}  // namespace
}  // namespace sg

// The fused classifier's gradients are made in forward for the seed that is expected; that must
// show in speed alone.
#include <gtest/gtest.h>

#include "autograd/ops.h"
#include "autograd/recompute.h"

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
    for (float g : weight.grad().to_vector<float>())
      all.push_back(g);
    return all;
  }
};

Tensor seed_of(float value) {
  return full({}, value);
}

TEST(ClassifierLoss, AgreesWithItsParts) {
  const Head fused, parts;
  const Variable a = fused.loss(), b = cross_entropy(linear(parts.x, parts.weight), parts.targets);
  EXPECT_NEAR(a.item(), b.item(), 1e-6);
  backward(a);
  backward(b);
  const Floats found = fused.gradients(), expected = parts.gradients();
  for (size_t i = 0; i < found.size(); ++i)
    EXPECT_NEAR(found[i], expected[i], 1e-6) << i;
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
  EXPECT_EQ(expected.gradients(),
            unexpected.gradients());  // powers of two: a late multiplication is exact
}

TEST(ClassifierLoss, TheWeightsGradientIsHandedOverWithoutACopy) {
  const Head head;
  const Variable loss = head.loss();
  pool(cpu()).reset_peaks();
  const uint64_t before = pool(cpu()).ledger().total();
  backward(loss);
  const Ledger after = pool(cpu()).ledger();
  EXPECT_LT(after.total_peak() - before, head.weight.tensor().bytes());  // the seed
  EXPECT_EQ(after.held(Category::gradients),
            head.weight.tensor().bytes() + head.x.tensor().bytes());
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
  for (float& g : twice)
    g += g;
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
  for (size_t i = 0; i < found.size(); ++i)
    EXPECT_NEAR(found[i], expected[i], 1e-6) << i;
}

// ---- where a pass is expected, the weight's gradient is made in the weight's gradient buffer

struct BufferedHead : Head {
  Tensor buffer = full({7 * 8}, -7);  // the gradient lies in the middle

  BufferedHead() {
    weight.set_gradient_buffer([this] { return gradient(); });
  }
  Tensor gradient() const { return buffer.slice(0, 8, 48).reshape({5, 8}); }
  Variable other_loss() const {
    return classifier_loss(x, weight, from_vector<int64_t>({1, 1, 3, 0, -1, 2}));
  }
  Variable expected_loss() const {
    const ExpectedSeed scope(1);
    return loss();
  }
};

TEST(ClassifierLoss, IsMadeInTheWeightsGradientBufferWhereAPassIsExpected) {
  const Head head;
  backward(head.loss());
  const BufferedHead buffered;
  const Variable unexpected = buffered.loss();
  EXPECT_EQ(buffered.gradient().to_vector<float>(), Floats(40, -7)) << "somebody may still need it";
  const Variable loss = buffered.expected_loss();
  EXPECT_EQ(buffered.gradient().to_vector<float>(), head.weight.grad().to_vector<float>())
      << "in forward";
  EXPECT_FALSE(buffered.weight.grad().defined());
  pool(cpu()).reset_peaks();
  const Ledger before = pool(cpu()).ledger();
  backward(loss);
  EXPECT_EQ(buffered.gradients(), head.gradients());
  EXPECT_EQ(buffered.weight.grad().storage(), buffered.buffer.storage());
  EXPECT_LT(pool(cpu()).ledger().total_peak() - before.total(), head.weight.tensor().bytes())
      << "no copy";
  EXPECT_EQ(buffered.buffer.slice(0, 0, 8).to_vector<float>(), Floats(8, -7));
  EXPECT_EQ(buffered.buffer.slice(0, 48, 56).to_vector<float>(), Floats(8, -7));
}

// The weight's gradient after a pass.
Floats after(const BufferedHead& h, const Variable& loss, const BackwardOptions& options = {}) {
  backward(loss, options);
  return h.weight.grad().to_vector<float>();
}
Variable squares(const Variable& x) {
  return sum(x * x);
}

// What may come between forward and backward: the weight's gradients after each pass.
using Passes = std::function<std::vector<Floats>(const BufferedHead&)>;
std::vector<std::pair<const char*, Passes>> passes_over_the_buffer() {
  return {
      {"another use comes first in backward",
       [](const BufferedHead& h) {
         const Variable loss = h.loss();
         return std::vector<Floats>{after(h, loss + squares(h.weight))};
       }},
      {"another use comes last in backward",
       [](const BufferedHead& h) {
         const Variable before = squares(h.weight);
         return std::vector<Floats>{after(h, before + h.loss())};
       }},
      {"two classifiers",
       [](const BufferedHead& h) {
         const Variable loss = h.loss();
         return std::vector<Floats>{after(h, loss + h.other_loss())};
       }},
      {"backward in the order of forward",
       [](const BufferedHead& h) {
         const Variable first = h.loss(), second = h.other_loss();
         const Floats of_first = after(h, first);
         return std::vector<Floats>{of_first, after(h, second)};
       }},
      {"a forward without backward",
       [](const BufferedHead& h) {
         const Variable unused = h.loss();
         return std::vector<Floats>{after(h, squares(h.weight)), after(h, unused)};
       }},
      {"a forward that is dropped",
       [](const BufferedHead& h) {
         h.loss();
         return std::vector<Floats>{after(h, squares(h.weight)), after(h, h.loss())};
       }},
      {"a retained graph",
       [](const BufferedHead& h) {
         const Variable loss = h.loss() + squares(h.weight);
         const Floats once = after(h, loss, {.retain_graph = true});
         return std::vector<Floats>{once, after(h, loss)};
       }},
      {"another seed",
       [](const BufferedHead& h) {
         return std::vector<Floats>{after(h, h.loss(), {.seed = seed_of(3)})};
       }},
      {"the buffer is asked for",
       [](const BufferedHead& h) {
         const Variable loss = h.loss();
         fill_(h.weight.gradient_buffer(), 0);
         return std::vector<Floats>{after(h, loss)};
       }},
      {"recomputed after another use",
       [](const BufferedHead& h) {
         const Variable loss = recompute(
             [&](const Variable& x) { return classifier_loss(x, h.weight, h.targets); }, h.x);
         return std::vector<Floats>{after(h, loss + squares(h.weight))};
       }},
  };
}

// With and without the scope that lets a contribution lie in the buffer early.
TEST(ClassifierLoss, AnEarlyContributionIsWholeWhateverElseIsWrittenIntoTheBuffer) {
  for (const auto& [what, passes] : passes_over_the_buffer()) {
    const BufferedHead late, early;
    const std::vector<Floats> expected = passes(late);
    const ExpectedSeed scope(1);
    EXPECT_EQ(passes(early), expected) << what;
  }
}

TEST(ClassifierLoss, TargetsMustFitTheRows) {
  Head head;
  head.targets = from_vector<int64_t>({0, 1});
  EXPECT_THROW(head.loss(), Error);
}

}  // namespace
}  // namespace sg

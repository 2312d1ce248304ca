// Targets of −1 count nowhere: not in the losses' means, not in what is reported of them.
#include "autograd/targets.h"

#include <gtest/gtest.h>

#include <cmath>

#include "autograd/ops.h"
#include "autograd/recompute.h"

namespace sg {
namespace {

const std::vector<int32_t> half = {1, -1, 2, -1};

TEST(Targets, AreCountedInEveryTypeAndLayout) {
  EXPECT_EQ(count_targets(from_vector(half)), 2);
  EXPECT_EQ(count_targets(from_vector<int64_t>({0, -1, 3}, {1, 3})), 2);
  EXPECT_EQ(count_targets(from_vector<int32_t>({-1, 0, -1, 1, -1, 2}, {3, 2}).transposed()), 3);
  EXPECT_EQ(count_targets(from_vector<int32_t>({-1, 0, -1, 1, -1, 2}, {3, 2}).slice(1, 0, 1)), 0);
  EXPECT_EQ(count_targets(empty({0}, DType::i32)), 0);
  EXPECT_EQ(count_targets(empty({5}, DType::i32, meta())), 5);
}

TEST(Targets, ThatAreLeftOutCountInNoMean) {
  const Variable logits(zeros({4, 8})), weight(zeros({8, 3})), x(zeros({4, 3}));
  EXPECT_FLOAT_EQ(cross_entropy(logits, from_vector(half)).item(), std::log(8.0f));
  EXPECT_FLOAT_EQ(classifier_loss(x, weight, from_vector(half)).item(), std::log(8.0f));
}

TEST(Targets, OfLossesAreReportedOnceToTheInnermostScope) {
  const Variable logits(zeros({4, 8}), true), weight(zeros({8, 8}), true);
  const Tensor targets = from_vector(half);
  const TargetsMet outer;
  {
    const TargetsMet met;
    const Variable loss =
        recompute([&](const Variable& x) { return classifier_loss(x, weight, targets); }, logits);
    backward(loss + cross_entropy(logits, targets));
    EXPECT_EQ(met.losses(), 2);
    EXPECT_EQ(met.targets(), 4);
    EXPECT_EQ(met.positions(), 8);
  }
  EXPECT_EQ(outer.losses(), 0);
  cross_entropy(logits, targets);
  EXPECT_EQ(outer.losses(), 1);
}

}  // namespace
}  // namespace sg

// The norm's sums by chunks and subtrees, and the factor that clips.
#include "optim/clip.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/ops.h"

namespace sg::optim {
namespace {

std::vector<double> awkward(int64_t n) {  // whose sum depends on its order
  std::vector<double> values;
  for (int64_t i = 0; i < n; ++i)
    values.push_back(std::exp(std::sin(static_cast<double>(i)) * 9));
  return values;
}

TEST(Clip, SubtreesOfAnySplitJoinToTheTree) {
  for (int64_t total = 1; total <= 37; ++total) {
    const auto sums = awkward(total);
    const std::span<const double> all(sums);
    for (int64_t a = 0; a <= total; ++a) {
      for (int64_t b = a; b <= total; ++b) {  // three ranks: [0, a), [a, b), [b, total)
        std::vector<Subtree> parts;
        for (auto [begin, end] : {std::pair{int64_t{0}, a}, {a, b}, {b, total}}) {
          const auto own =
              all.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
          for (const Subtree& part : subtrees(own, begin, total))
            parts.push_back(part);
        }
        ASSERT_EQ(join(parts, total), tree_sum(all))
            << total << " chunks cut at " << a << " and " << b;
      }
    }
  }
}

TEST(Clip, ARankSendsOnlyTheLargestSubtrees) {
  const auto sums = awkward(8);
  EXPECT_EQ(subtrees(sums, 0, 8).size(), 1u);
  const auto middle = subtrees(std::span(sums).subspan(1, 6), 1, 8);  // 1, 2–3, 4–5, 6
  ASSERT_EQ(middle.size(), 4u);
  EXPECT_EQ(middle[1].begin, 2);
  EXPECT_EQ(middle[1].end, 4);
  EXPECT_EQ(middle[1].sum, sums[2] + sums[3]);
}

TEST(Clip, MissingChunksAreABug) {
  const auto sums = awkward(4);
  auto parts = subtrees(std::span(sums).subspan(1), 1, 4);
  EXPECT_THROW(join(parts, 4), Bug);
  parts = subtrees(sums, 0, 4);
  parts.push_back(parts[0]);
  EXPECT_THROW(join(parts, 4), Bug);
}

TEST(Clip, ChunksAddUpToTheNorm) {
  const Tensor gradient = full({2500}, 2);
  const auto sums = chunk_sums(gradient);
  ASSERT_EQ(sums.size(), static_cast<size_t>(chunks_of(2500)));
  EXPECT_EQ(sums[0], 4096);
  EXPECT_EQ(sums[2], 4 * (2500 - 2048));
  const double parameters[] = {tree_sum(sums), 44};  // 10,000 + 44
  EXPECT_DOUBLE_EQ(global_norm(parameters), std::sqrt(10044));
  EXPECT_DOUBLE_EQ(global_norm(parameters, 8), std::sqrt(10044) / 8);
}

TEST(Clip, TheFactorUnscalesAndClipsInOne) {
  EXPECT_EQ(clip_factor(123, 0, 4), 0.25f);                          // off
  EXPECT_EQ(clip_factor(0.5, 1), 1.0f);                              // small enough
  EXPECT_EQ(clip_factor(4, 1), static_cast<float>(1 / (4 + 1e-6)));  // clipped
  EXPECT_EQ(clip_factor(4, 1, 1024), static_cast<float>(1 / (4 + 1e-6) / 1024));
}

TEST(Clip, ValuesOutOfRangeAreRefused) {
  for (const double clip : {-1.0, std::nan(""), HUGE_VAL})
    EXPECT_THROW(clip_factor(1, clip), Error) << clip;
  for (const double scale : {0.0, -1.0, std::nan(""), HUGE_VAL}) {
    EXPECT_THROW(clip_factor(1, 1, scale), Error) << scale;
    EXPECT_THROW(global_norm({}, scale), Error) << scale;
  }
}

}  // namespace
}  // namespace sg::optim

// The ring at work, as the textbook has it.
#include "dist/explain_ring.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace sg::dist {
namespace {

using Held = std::vector<std::vector<RingTrace::Contributors>>;

TEST(Ring, AfterTheFirstPhaseEachRankHasOneSumThenAllHaveAll) {
  const RingTrace trace = trace_ring(3);
  // Blocks A, B, C: rank 0 holds the sum of B, rank 1 of C, rank 2 of A; the rest is as it was.
  EXPECT_EQ(trace.after_scatter,
            (Held{{0b001, 0b111, 0b001}, {0b010, 0b010, 0b111}, {0b111, 0b100, 0b100}}));
  EXPECT_EQ(trace.after_gather, Held(3, {0b111, 0b111, 0b111}));
}

TEST(Ring, TakesTwiceAsManyNeighbourStepsAsThereAreOtherRanks) {
  for (int ranks = 2; ranks <= 8; ++ranks) {
    const RingTrace trace = trace_ring(ranks);
    const auto all = (RingTrace::Contributors{1} << ranks) - 1;
    for (const auto& moves : trace.moves)
      EXPECT_EQ(moves.size(), static_cast<size_t>(2 * (ranks - 1)));
    EXPECT_EQ(trace.after_gather,
              Held(static_cast<size_t>(ranks), Held::value_type(static_cast<size_t>(ranks), all)));
  }
  EXPECT_THROW(trace_ring(1), Error);
  EXPECT_THROW(trace_ring(9), Error);
}

TEST(Ring, TheExplanationSaysWhoHoldsWhat) {
  const std::string text = explain_ring(3);
  const char* const lines[] = {
      "  rank 0 sends A0 to rank 1, which then has A0+A1\n",
      "  rank 2 sends A0+A1+A2 to rank 0, which then has A0+A1+A2\n",
      "After the scatter-reduce rank 0 has the sum of block B, rank 1 has the sum of block C, rank "
      "2 has the sum of",
      "  rank 0 holds  A0         B0+B1+B2   C0\n",
  };
  for (const char* line : lines)
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
}

}  // namespace
}  // namespace sg::dist

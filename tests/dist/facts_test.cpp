// The table of facts about engines is whole and agrees with itself.
#include "dist/engines/facts.h"

#include <gtest/gtest.h>

namespace sg::dist {
namespace {

TEST(EngineFacts, EveryEngineHasItsRow) {
  for (int kind = 0; kind <= static_cast<int>(EngineKind::automatic); ++kind) {
    const auto engine = static_cast<EngineKind>(kind);
    EXPECT_EQ(facts_of(engine).kind, engine) << name_of(engine);
  }
}

TEST(EngineFacts, EachRungShardsMoreThanTheOneBeforeIt) {
  const std::span<const EngineKind> rungs = ladder();
  ASSERT_EQ(rungs.size(), 4u) << "ZeRO's stages 0 to 3";
  for (size_t i = 0; i < rungs.size(); ++i) {
    const EngineFacts& facts = facts_of(rungs[i]);
    EXPECT_EQ(static_cast<size_t>(facts.shards), i) << name_of(rungs[i]);
    EXPECT_EQ(facts.next, i + 1 < rungs.size() ? rungs[i + 1] : rungs[i]) << name_of(rungs[i]);
  }
}

}  // namespace
}  // namespace sg::dist

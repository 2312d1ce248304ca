// Which unit has which parameter, tied ones and strangers among them.
#include "autograd/unit_map.h"

#include <gtest/gtest.h>

#include "core/ops.h"

namespace sg {
namespace {

Variable leaf(const char* name) {
  return Variable(empty({2}), true, name);
}

TEST(UnitMap, ATiedParameterBelongsToTheFirstUnitThatHasItAndIsUsedByAll) {
  const Variable a = leaf("a"), tied = leaf("tied"), b = leaf("b");
  const std::vector<Unit> units = {{"first", {a}}, {"second", {tied, tied}}, {"third", {b, tied}}};
  const UnitMap map(units);
  ASSERT_EQ(map.entries().size(), 3u);
  const struct {
    const Variable& parameter;
    size_t owner;
    std::vector<size_t> users;
    size_t position;
  } rows[] = {{a, 0, {0}, 0}, {tied, 1, {1, 2}, 1}, {b, 2, {2}, 2}};
  for (const auto& row : rows) {
    const UnitMap::Entry* entry = map.find(row.parameter);
    ASSERT_TRUE(entry) << row.parameter.name();
    EXPECT_EQ(entry->parameter, row.parameter);
    EXPECT_EQ(entry->owner, row.owner) << row.parameter.name();
    EXPECT_EQ(entry->users, row.users) << row.parameter.name();
    EXPECT_EQ(entry->position, row.position) << row.parameter.name();
  }
  EXPECT_EQ(map.find(leaf("a stranger")), nullptr);
}

}  // namespace
}  // namespace sg

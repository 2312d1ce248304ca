// Learning rates at the corners of each schedule.
#include "optim/schedules.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"

namespace sg::optim {
namespace {

TEST(Schedules, WarmUpIsALine) {
  for (auto kind : {ScheduleKind::constant, ScheduleKind::linear, ScheduleKind::cosine, ScheduleKind::wsd}) {
    const Schedule s{.kind = kind, .lr = 1, .min_lr = 0.1, .warmup = 4, .steps = 100, .decay = 20};
    EXPECT_DOUBLE_EQ(s.at(0), 0.2) << name_of(kind);
    EXPECT_DOUBLE_EQ(s.at(3), 0.8) << name_of(kind);
    EXPECT_DOUBLE_EQ(s.at(4), 1.0) << name_of(kind);
  }
}

TEST(Schedules, ThenEachGoesItsWay) {
  Schedule s{.kind = ScheduleKind::constant, .lr = 1, .min_lr = 0.2, .warmup = 10, .steps = 110, .decay = 20};
  EXPECT_DOUBLE_EQ(s.at(1000), 1);
  s.kind = ScheduleKind::linear;
  EXPECT_DOUBLE_EQ(s.at(35), 0.8);
  EXPECT_DOUBLE_EQ(s.at(60), 0.6);
  EXPECT_DOUBLE_EQ(s.at(110), 0.2);
  s.kind = ScheduleKind::cosine;
  EXPECT_DOUBLE_EQ(s.at(60), 0.6);
  EXPECT_NEAR(s.at(35), 0.2 + 0.8 * 0.5 * (1 + std::sqrt(0.5)), 1e-15);
  EXPECT_DOUBLE_EQ(s.at(500), 0.2);
  s.kind = ScheduleKind::wsd;
  EXPECT_DOUBLE_EQ(s.at(90), 1);
  EXPECT_DOUBLE_EQ(s.at(100), 0.6);
  EXPECT_DOUBLE_EQ(s.at(110), 0.2);
}

// Rates that DeepSpeed's classes give an optimizer's n-th step, worked out from their formulas by hand.
TEST(Schedules, DeepSpeedsHaveItsRates) {
  Schedule s{.kind = ScheduleKind::warmup_lr, .lr = 1, .warmup = 4, .steps = 12, .start_lr = 0.2, .log_warmup = false};
  for (const auto& [step, lr] : {std::pair{0, 0.2}, {1, 0.2}, {2, 0.4}, {4, 0.8}, {5, 1.0}, {99, 1.0}})
    EXPECT_DOUBLE_EQ(s.at(step), lr) << step;
  s.log_warmup = true;
  EXPECT_DOUBLE_EQ(s.at(1), 0.2);
  EXPECT_DOUBLE_EQ(s.at(2), 0.2 + 0.8 * 0.5);  // ln 2 / ln 4
  s.kind = ScheduleKind::warmup_decay_lr;
  s.min_lr = 0.2;
  for (const auto& [step, lr] : {std::pair{5, 1.0}, {9, 0.6}, {13, 0.2}, {99, 0.2}})
    EXPECT_DOUBLE_EQ(s.at(step), lr) << step;
  s.kind = ScheduleKind::warmup_cosine_lr;
  for (const auto& [step, lr] : {std::pair{0, 0.0}, {1, 0.2}, {8, 0.6}, {12, 0.2}, {99, 0.2}})
    EXPECT_DOUBLE_EQ(s.at(step), lr) << step;
}

TEST(Schedules, NamesGoBothWays) {
  EXPECT_EQ(parse_schedule("WarmupLR"), ScheduleKind::warmup_lr);
  EXPECT_EQ(parse_schedule("wsd"), ScheduleKind::wsd);
  EXPECT_THROW(parse_schedule("step"), Error);
}

}  // namespace
}  // namespace sg::optim

// Learning rates at the corners of each schedule.
#include "optim/schedules.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/errors.h"

namespace sg::optim {
namespace {

TEST(Schedules, WarmUpIsALine) {
  for (auto kind :
       {ScheduleKind::constant, ScheduleKind::linear, ScheduleKind::cosine, ScheduleKind::wsd}) {
    const Schedule s{.kind = kind, .lr = 1, .min_lr = 0.1, .warmup = 4, .steps = 100, .decay = 20};
    EXPECT_DOUBLE_EQ(s.at(0), 0.2) << name_of(kind);
    EXPECT_DOUBLE_EQ(s.at(3), 0.8) << name_of(kind);
    EXPECT_DOUBLE_EQ(s.at(4), 1.0) << name_of(kind);
  }
}

TEST(Schedules, ThenEachGoesItsWay) {
  Schedule s{.kind = ScheduleKind::constant,
             .lr = 1,
             .min_lr = 0.2,
             .warmup = 10,
             .steps = 110,
             .decay = 20};
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

// Rates that DeepSpeed's classes give an optimizer's n-th step, worked out from their formulas by
// hand.
TEST(Schedules, DeepSpeedsHaveItsRates) {
  Schedule s{.kind = ScheduleKind::warmup_lr,
             .lr = 1,
             .warmup = 4,
             .steps = 12,
             .start_lr = 0.2,
             .log_warmup = false};
  for (const auto& [step, lr] :
       {std::pair{0, 0.2}, {1, 0.2}, {2, 0.4}, {4, 0.8}, {5, 1.0}, {99, 1.0}})
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

TEST(Schedules, ADecayThatIsntGivenIsATenth) {
  Schedule s{.kind = ScheduleKind::wsd, .lr = 1, .warmup = 2, .steps = 20};
  for (const auto& [step, lr] : {std::pair{17, 1.0}, {18, 1.0}, {19, 0.5}, {20, 0.0}})
    EXPECT_DOUBLE_EQ(s.at(step), lr) << step;
  s.steps = 5;  // at least two steps, of which the second is trained with less
  EXPECT_DOUBLE_EQ(s.at(3), 1);
  EXPECT_DOUBLE_EQ(s.at(4), 0.5);
  s.decay = 3;
  EXPECT_DOUBLE_EQ(s.at(4), 1.0 / 3);
}

TEST(Schedules, WhatCantBeMeantIsRefusedWithItsValues) {
  using Kind = ScheduleKind;
  const double nan = std::nan("");
  const std::pair<Schedule, std::vector<const char*>> mistakes[] = {
      {{.kind = Kind::constant, .lr = -1}, {"lr", "-1"}},
      {{.kind = Kind::constant, .lr = nan}, {"lr", "nan"}},
      {{.kind = Kind::constant, .lr = INFINITY}, {"lr", "inf"}},
      {{.kind = Kind::linear, .lr = 1, .min_lr = nan, .steps = 9}, {"min_lr", "nan"}},
      {{.kind = Kind::cosine, .lr = 1, .min_lr = 2, .steps = 9}, {"min_lr 2", "lr 1"}},
      {{.kind = Kind::warmup_decay_lr, .lr = 1, .min_lr = 2, .steps = 9}, {"min_lr 2", "lr 1"}},
      {{.kind = Kind::warmup_lr, .lr = 1, .start_lr = 2}, {"start_lr 2", "lr 1"}},
      {{.kind = Kind::linear, .lr = 1, .warmup = 10, .steps = 5}, {"warmup 10", "steps 5"}},
      {{.kind = Kind::warmup_cosine_lr, .lr = 1, .warmup = 10, .steps = 5},
       {"warmup 10", "steps 5"}},
      {{.kind = Kind::wsd, .lr = 1, .warmup = 3, .steps = 5, .decay = 3},
       {"warmup 3", "decay 3", "steps 5"}},
      {{.kind = Kind::wsd, .lr = 1, .steps = 5, .decay = -3}, {"decay -3"}},
      {{.kind = Kind::constant, .lr = 1, .warmup = -1}, {"warmup -1"}},
      {{.kind = Kind::cosine, .lr = 1}, {"cosine", "steps is 0"}},
  };
  for (const auto& [schedule, words] : mistakes) {
    const std::string message = test::error_of(ErrorKind::usage, [&s = schedule] { s.at(0); });
    for (const char* word : words)
      EXPECT_NE(message.find(word), std::string::npos) << word << ": " << message;
  }
  test::error_of(ErrorKind::usage, [] { Schedule{.kind = ScheduleKind::constant}.at(-1); });
  EXPECT_NO_THROW((Schedule{.kind = Kind::constant, .lr = 1, .warmup = 10, .steps = 5}.at(0)))
      << "a constant rate knows no end";
}

TEST(Schedules, NamesGoBothWays) {
  EXPECT_EQ(parse_schedule("WarmupLR"), ScheduleKind::warmup_lr);
  EXPECT_EQ(parse_schedule("wsd"), ScheduleKind::wsd);
  EXPECT_THROW(parse_schedule("step"), Error);
}

}  // namespace
}  // namespace sg::optim

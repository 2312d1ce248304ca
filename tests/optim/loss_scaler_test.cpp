// Sequences of the loss scale, worked out by hand.
#include "optim/loss_scaler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "core/error.h"

namespace sg::optim {
namespace {

// The scale after each step; '+' is a good one, '!' an overflow.
std::vector<double> scales(LossScaler& scaler, const char* steps) {
  std::vector<double> seen;
  for (; *steps; ++steps) {
    scaler.update(*steps == '!');
    seen.push_back(scaler.scale());
  }
  return seen;
}
using Scales = std::vector<double>;

TEST(LossScaler, GrowsAfterAWindowCountedFromMinusOne) {
  LossScaler scaler({.initial_power = 2, .window = 2, .hysteresis = 1});
  EXPECT_EQ(scaler.scale(), 4);
  EXPECT_EQ(scales(scaler, "+++"), (Scales{4, 4, 8}));  // good: 0, 1, 2
  EXPECT_EQ(scales(scaler, "++"), (Scales{8, 16}));     // good starts at 0 after a growth
}

TEST(LossScaler, HalvesAndStartsCountingAgain) {
  LossScaler scaler({.initial_power = 4, .window = 2, .hysteresis = 1});
  EXPECT_EQ(scales(scaler, "++!"), (Scales{16, 16, 8}));
  EXPECT_EQ(scales(scaler, "++"), (Scales{8, 8}));
  EXPECT_EQ(scales(scaler, "+"), (Scales{16}));
}

TEST(LossScaler, HysteresisForgivesOverflows) {
  LossScaler scaler({.initial_power = 4, .window = 3, .hysteresis = 3});
  EXPECT_EQ(scales(scaler, "!!!!"), (Scales{16, 16, 8, 4}));  // used up: every further one halves
  EXPECT_EQ(scales(scaler, "++++"), (Scales{4, 4, 4, 8}));    // growth refills it
  EXPECT_EQ(scales(scaler, "!!!"), (Scales{8, 8, 4}));
}

TEST(LossScaler, ConsecutiveHysteresisIsRefilledByAGoodStep) {
  LossScaler strict({.initial_power = 4, .hysteresis = 2}),
      lenient({.initial_power = 4, .hysteresis = 2, .consecutive_hysteresis = true});
  EXPECT_EQ(scales(strict, "!+!"), (Scales{16, 16, 8}));
  EXPECT_EQ(scales(lenient, "!+!!"), (Scales{16, 16, 16, 8}));
}

TEST(LossScaler, AStaticScaleNeverChanges) {
  LossScaler scaler({.fixed = 128, .window = 1});
  EXPECT_EQ(scales(scaler, "++!!!+"), (Scales{128, 128, 128, 128, 128, 128}));
}

TEST(LossScaler, StopsAtTheMinimum) {
  LossScaler scaler({.initial_power = 1, .hysteresis = 1, .minimum = 1});
  EXPECT_EQ(scales(scaler, "!"), (Scales{1}));
  try {
    scaler.update(true, "h.3.mlp.up.weight");
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::numeric);
    EXPECT_NE(std::string(error.what()).find("h.3.mlp.up.weight"), std::string::npos)
        << error.what();
  }
}

TEST(LossScaler, GoesOnFromItsState) {
  const LossScaleOptions options{.initial_power = 4, .window = 3, .hysteresis = 2};
  LossScaler a(options), b(options);
  scales(a, "+!++");
  b.restore(a.state());
  EXPECT_EQ(scales(a, "+!!+"), scales(b, "+!!+"));
  EXPECT_EQ(a.state(), b.state());
}

TEST(LossScaler, RefusesWhatMakesNoSense) {
  EXPECT_THROW(LossScaler({.fixed = -1}), Error);
  EXPECT_THROW(LossScaler({.window = 0}), Error);
  EXPECT_THROW(LossScaler({.hysteresis = 0}), Error);
}

TEST(LossScaler, ValuesOutOfRangeAreRefused) {
  const double nan = std::nan("");
  for (const LossScaleOptions& o : {LossScaleOptions{.fixed = nan},
                                    LossScaleOptions{.fixed = HUGE_VAL},
                                    LossScaleOptions{.initial_power = 2000},
                                    LossScaleOptions{.initial_power = -1},
                                    LossScaleOptions{.minimum = 0},
                                    LossScaleOptions{.minimum = nan}})
    EXPECT_THROW(LossScaler{o}, Error);
  LossScaler scaler({});
  for (const LossScaler::State& s : {LossScaler::State{nan, 0, 0},
                                     LossScaler::State{0, 0, 0},
                                     LossScaler::State{HUGE_VAL, 0, 0}})
    EXPECT_THROW(scaler.restore(s), Error);
}

TEST(LossScaler, GrowsNoFurtherThanALossCanTake) {
  LossScaler scaler({.initial_power = 99, .window = 1});
  for (int i = 0; i < 10; ++i)
    scaler.update(false);
  EXPECT_EQ(scaler.scale(), 0x1p100);
}

}  // namespace
}  // namespace sg::optim

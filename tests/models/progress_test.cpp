// What a run shows of its steps.
#include "models/run/progress.h"

#include <gtest/gtest.h>

#include <fstream>

#include "tests/core/temporary_folder.h"

namespace sg::models {
namespace {

// The line and the metrics of a step of a second whose products take so long alone.
std::pair<std::string, Json> shown(double ideal_seconds) {
  const test::TemporaryFolder folder;
  testing::internal::CaptureStdout();
  {
    Progress progress(true, 1, 1, 64, folder.path(), 0);
    progress.set_peak(ideal_seconds);
    progress.step({.loss = 1, .lr = 1e-3, .norm = 1, .seconds = 1, .skipped = {}});
  }
  const std::string line = testing::internal::GetCapturedStdout();
  std::ifstream file(folder / "metrics.jsonl");
  return {line, Json::parse(file)};
}

// A peak measured beside busy ranks is too low: no share at all rather than one above 100 %.
TEST(Progress, MfuIsAShareOrNothing) {
  const auto [half, half_metrics] = shown(0.5);
  EXPECT_NE(half.find("MFU 50 %"), std::string::npos) << half;
  EXPECT_EQ(half_metrics.at("mfu"), 0.5);
  const auto [whole, whole_metrics] = shown(1);
  EXPECT_NE(whole.find("MFU 100 %"), std::string::npos) << whole;
  const auto [above, above_metrics] = shown(1.01);
  EXPECT_NE(above.find("MFU –"), std::string::npos) << above;
  EXPECT_TRUE(above_metrics.at("mfu").is_null());
  const auto [unknown, unknown_metrics] = shown(0);
  EXPECT_EQ(unknown.find("MFU"), std::string::npos) << unknown;
  EXPECT_TRUE(unknown_metrics.at("mfu").is_null());
}

}  // namespace
}  // namespace sg::models

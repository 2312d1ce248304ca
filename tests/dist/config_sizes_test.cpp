// Sizes in the JSON configuration that follow from others.
#include <gtest/gtest.h>

#include "dist/config/config.h"
#include "tests/errors.h"

namespace sg::dist {
namespace {

using test::error_of;

Config parse(const std::string& text) {
  return parse_config(text, "ds.json");
}

TEST(Config, AnyTwoBatchSizesGiveTheThird) {
  const auto all = [](BatchSizes s) { return std::vector{s.train, s.micro, s.accumulation}; };
  const std::vector<int64_t> whole{24, 2, 4};
  for (const BatchSizes& given : {BatchSizes{24, 2, 4}, {24, 2, 0}, {24, 0, 4}, {0, 2, 4}})
    EXPECT_EQ(all(settle(given, 3)), whole);
  EXPECT_EQ(all(settle({24, 0, 0}, 3)), (std::vector<int64_t>{24, 8, 1}));
  EXPECT_EQ(all(settle({0, 2, 0}, 3)), (std::vector<int64_t>{6, 2, 1}));
  for (const BatchSizes& given :
       {BatchSizes{24, 2, 5}, {25, 2, 0}, {25, 0, 4}, {2, 0, 0}, {2, 4, 0}})
    error_of(ErrorKind::usage, [&] { settle(given, 3); });
  EXPECT_EQ(error_of(ErrorKind::usage,
                     [] {
                       settle({24, 2, 5}, 3);
                     }),
            "batch: train_batch_size 24 isn't train_micro_batch_size_per_gpu 2 × "
            "gradient_accumulation_steps 5 × 3 "
            "ranks = 30");
  EXPECT_EQ(parse(R"({"train_batch_size": 24, "train_micro_batch_size_per_gpu": 2})")
                .options(3)
                .micro_steps,
            4);
  error_of(ErrorKind::usage, [&] { settle({0, int64_t{1} << 47, 1 << 20}, 64); });
}

TEST(Config, StageAutoIsEngineAuto) {
  EXPECT_EQ(parse(R"({"zero_optimization": {"stage": "auto"}})").engine.engine,
            EngineKind::automatic);
}

TEST(Config, ABucketOfElementsFollowsThePrecision) {
  const std::string bucket = R"("zero_optimization": {"reduce_bucket_size": 1000})";
  EXPECT_EQ(parse("{" + bucket + "}").engine.bucket_bytes, 4000);
  EXPECT_EQ(parse("{" + bucket + R"(, "bf16": {"enabled": true}})").engine.bucket_bytes, 2000);
}

}  // namespace
}  // namespace sg::dist

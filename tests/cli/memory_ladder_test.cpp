// A device that is too small: what each engine says, which rung comes next, and what `auto` takes.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "cli/program.h"

namespace sg::cli {
namespace {

using Json = nlohmann::json;

struct MemoryLadder : testing::Test {
  void SetUp() override { write(folder / "text", small_text()); }

  // What train and plan have in common: four ranks, two micro-steps, 0.9 million parameters.
  static std::string common() {
    return " --size nano --layers 6 --heads 4 --width 96 --context 16 --vocab 2048 --micro-batch 2 "
           "--threads 1"
           " --bucket-bytes 64KiB ";
  }
  Outcome train(uint64_t memory, const std::string& more, int steps = 4) const {
    return gpt2("train --ranks 4 --global-batch 16 --tokenizer chars --val-fraction 0 --data " +
                (folder / "text") + common() + "--receipt " + (folder / "receipt") +
                " --device-memory " + std::to_string(memory) + " --steps " + std::to_string(steps) +
                " " + more + (uses_zero3(more) ? prefetch : ""));
  }
  static bool uses_zero3(const std::string& words) {
    return words.find("zero3") != std::string::npos || words.find("auto") != std::string::npos;
  }
  static constexpr const char* prefetch = " --prefetch-elements 100000 ";
  // Bytes that each engine needs of a device.
  static std::map<std::string, uint64_t> plan() {
    const Outcome outcome =
        gpt2("plan --world 4 --micro-steps 2 --accumulation ranks_first --json" + common() +
             prefetch + "--engine all");
    EXPECT_EQ(outcome.code, 0) << outcome.both();
    const Json json = Json::parse(outcome.out);
    std::map<std::string, uint64_t> needed;
    for (const Json& engine : json.at("engines")) {
      const Json& memory = engine.at("memory");
      needed[engine.at("engine")] =
          std::max(memory.at("total").get<uint64_t>(), memory.at("setup").get<uint64_t>());
    }
    return needed;
  }
  Json receipt() const { return read_json(folder / "receipt"); }
  static void expect_says(const Outcome& outcome, std::initializer_list<std::string> parts) {
    for (const std::string& part : parts)
      EXPECT_NE(outcome.both().find(part), std::string::npos) << part << " in\n" << outcome.both();
  }
  Folder folder;
};

constexpr uint64_t plenty = uint64_t{1} << 30;

TEST_F(MemoryLadder, EachRungRunsOutNamesTheNextAndZero3Trains) {
  auto needed = plan();
  ASSERT_TRUE(needed["zero3"] < needed["zero2"] && needed["zero2"] < needed["zero1"] &&
              needed["zero1"] < needed["ddp"]);
  const uint64_t memory = (needed["zero3"] + needed["zero2"]) / 2;
  const std::pair<std::string, std::string> rungs[] = {
      {"ddp", "zero1"}, {"zero1", "zero2"}, {"zero2", "zero3"}};
  for (const auto& [engine, next] : rungs) {
    const Outcome outcome = train(memory, "--engine " + engine + " --accumulation ranks_first");
    EXPECT_EQ(outcome.code, 6) << outcome.both();
    expect_says(outcome,
                {engine + ": rank ",
                 " is out of device memory: asked for ",
                 ", holds ",
                 " MiB of ",
                 "\n  parameters ",
                 "\n  next rung: --engine " + next + " would free "});
  }
  const Outcome zero3 = train(memory, "--engine zero3");
  ASSERT_EQ(zero3.code, 0) << zero3.both();
  const Json by_hand = receipt();

  const Outcome automatic = train(memory, "--engine auto");
  ASSERT_EQ(automatic.code, 0) << automatic.both();
  expect_says(automatic,
              {"engine zero3 on 4 ranks",
               "auto: ddp needs ",
               "auto: zero1 needs ",
               "auto: zero2 needs ",
               ": too much",
               "auto: zero3 needs "});
  EXPECT_EQ(receipt().at("engine"), "zero3");
  for (const char* key : {"loss_bits", "params_sha256", "numerics"})
    EXPECT_EQ(receipt().at(key), by_hand.at(key)) << key;
}

TEST_F(MemoryLadder, APlanIsWhatAPoolMustHoldToTheByte) {
  for (const auto& [engine, bytes] : plan()) {
    const std::string words = "--accumulation ranks_first --engine " + engine;
    EXPECT_EQ(train(bytes, words).code, 0) << engine;
    EXPECT_EQ(train(bytes - 1, words).code, 6) << engine;
  }
}

TEST_F(MemoryLadder, AutoTakesTheFirstThatFitsAndKeepsTheOrderOfARun) {
  auto needed = plan();
  const std::string automatic =
      "--engine auto --schedule constant ";  // whose rates don't depend on the run's length
  ASSERT_EQ(train(plenty, automatic).code, 0);
  const Json whole = receipt();
  EXPECT_EQ(whole.at("engine"), "ddp");
  EXPECT_EQ(whole.at("numerics").at("accumulation"), "ranks_first");

  const std::string out = automatic + "--out " + (folder / "run") + " ";
  ASSERT_EQ(train(plenty, out, 2).code, 0);
  const Outcome resumed = train(needed["zero1"], out + "--resume");
  ASSERT_EQ(resumed.code, 0) << resumed.both();
  EXPECT_EQ(receipt().at("engine"), "zero1");
  for (const char* key : {"loss_bits", "params_sha256"})
    EXPECT_EQ(receipt().at(key), whole.at(key)) << key;
}

TEST_F(MemoryLadder, AutoStopsBeforeStep0WhereNothingFits) {
  const Outcome outcome = train(plan()["zero3"] - 1, "--engine auto --out " + (folder / "run"));
  EXPECT_EQ(outcome.code, 6) << outcome.both();
  expect_says(outcome,
              {"engine auto: none fits 4 ranks' devices",
               "auto: ddp needs ",
               "auto: zero3 needs ",
               ": too much"});
  EXPECT_EQ(outcome.out.find("step 1/"), std::string::npos) << outcome.out;
  EXPECT_EQ(gpt2("compare --engines auto").code, 2);
  EXPECT_EQ(gpt2("plan --engine auto").code, 2);
}

}  // namespace
}  // namespace sg::cli

// `compare`: engines side by side, and the books that its table shows.
#include <gtest/gtest.h>

#include "cli/program.h"

namespace sg::cli {
namespace {

using Json = nlohmann::json;

struct Compare : testing::Test {
  void SetUp() override { write(folder / "text", small_text()); }
  Outcome run(const std::string& more) const {
    return gpt2(
        "compare --size nano --layers 2 --heads 2 --width 32 --context 16 --micro-batch 2 "
        "--tokenizer chars"
        " --threads 1 --steps 3 --bucket-bytes 16KiB --data " +
        (folder / "text") + " --receipt " + (folder / "receipt") + " " + more);
  }
  Json comparison(const std::string& more) const {
    const Outcome outcome = run(more);
    EXPECT_EQ(outcome.code, 0) << outcome.both();
    return read_json(folder / "receipt");
  }
  Folder folder;
};

TEST_F(Compare, ShowsEveryEngineWithDdpsBits) {
  const Outcome outcome = run("--ranks 2");
  ASSERT_EQ(outcome.code, 0) << outcome.both();
  for (const char* text : {"dp",
                           "zero3",
                           "step, ms",
                           "model states",
                           "reduce_scatter",
                           "of it exposed",
                           "bits of ddp",
                           "planned",
                           "fastest first:",
                           "(textbook: ddp > zero1 > zero2 > zero3)",
                           "(textbook: zero3 > zero2 > zero1 > ddp)"})
    EXPECT_NE(outcome.out.find(text), std::string::npos) << text << "\n" << outcome.out;
  EXPECT_EQ(outcome.out.find("different"), std::string::npos) << outcome.out;
  const Json engines = read_json(folder / "receipt").at("engines");
  EXPECT_EQ(engines.size(), 5u);
  for (const auto& [name, engine] : engines.items())
    EXPECT_TRUE(engine.at("bits_equal").get<bool>()) << name;
}

TEST_F(Compare, HasTheBooksOfTheEngines) {
  const Json comparison = this->comparison("--ranks 2 --precision bf16");
  const auto phi = comparison.at("parameters").get<uint64_t>();
  const Json& engines = comparison.at("engines");
  EXPECT_EQ(engines.at("ddp").at("model_state"), 16 * phi);
  const auto near = [&](const char* engine,
                        uint64_t bytes) {  // shards are equal within a chunk of 1,024 elements
    EXPECT_NEAR(
        engines.at(engine).at("model_state").get<double>(), static_cast<double>(bytes), 14 * 1024)
        << engine;
  };
  near("zero1", 4 * phi + 6 * phi);
  near("zero2", 2 * phi + 7 * phi);
  near("zero3", 8 * phi);
  EXPECT_EQ(engines.at("ddp").at("traffic").at("all_reduce").at("sent"), 2 * phi);  // 2fφ elements
  EXPECT_EQ(engines.at("dp").at("traffic").at("broadcast").at("sent"), 2 * phi);
  EXPECT_EQ(comparison.at("by_memory").at(0), "zero3");
  for (const auto& [name, engine] : engines.items())
    for (const char* figure : {"total", "setup"})
      EXPECT_EQ(engine.at("memory").at(figure), engine.at("planned").at(figure))
          << name << " " << figure;
}

// Of each engine apart: what one's sums worked in isn't in the next one's books.
TEST_F(Compare, KeepsTheBooksOfTheEnginesApart) {
  const Json engines =
      comparison("--ranks 3 --reduction ring --engines ddp,zero3,zero1").at("engines");
  for (const auto& [name, engine] : engines.items()) {
    for (const char* figure : {"total", "setup"})
      EXPECT_EQ(engine.at("memory").at(figure), engine.at("planned").at(figure))
          << name << " " << figure;
    EXPECT_LE(engine.at("exposed_comm_ms").get<double>(), engine.at("comm_ms").get<double>())
        << name;
  }
}

TEST_F(Compare, RecomputingKeepsBitsAndPlansOfEveryEngine) {
  for (const std::string policy : {"full", "selective", "every:2"}) {
    const Json all = comparison("--ranks 2 --engines ddp,zero3 --recompute " + policy);
    for (const auto& [name, engine] : all.at("engines").items()) {
      EXPECT_TRUE(engine.at("bits_equal")) << name << " " << policy;
      for (const char* figure : {"total", "setup"})
        EXPECT_EQ(engine.at("memory").at(figure), engine.at("planned").at(figure))
            << name << " " << policy << " " << figure;
    }
  }
}

TEST_F(Compare, RanksThePeaksByThePeakRow) {
  const Json json =
      comparison("--ranks 2 --micro-batch 16");  // so that activations count for more than states
  uint64_t before = 0;
  for (const Json& name : json.at("by_peak")) {
    const uint64_t peak = json.at("engines").at(name.get<std::string>()).at("memory").at("total");
    EXPECT_LE(before, peak) << name;
    before = peak;
  }
}

TEST_F(Compare, RunsTheEnginesThatAreAskedFor) {
  const Json comparison = this->comparison("--ranks 3 --engines zero2,zero1 --reduction ring");
  EXPECT_EQ(comparison.at("engines").size(), 2u);
  EXPECT_EQ(comparison.at("reference"), "zero2");
  EXPECT_EQ(comparison.at("textbook").at("by_speed"), Json::array({"zero1", "zero2"}));
  EXPECT_EQ(run("--engines zero1,zero1").code, 2);
  EXPECT_EQ(run("--engines zero5").code, 2);
  EXPECT_EQ(run("--ranks 2 --engines none").code, 2);
}

}  // namespace
}  // namespace sg::cli

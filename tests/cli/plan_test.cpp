// `plan`: the published memory table, what is asked for is what is planned, and what it refuses.
#include <gtest/gtest.h>

#include <map>

#include "cli/program.h"

namespace sg::cli {
namespace {

using Json = nlohmann::json;

Json plan(const std::string& arguments) {
  const Outcome outcome = gpt2("plan --json " + arguments);
  EXPECT_EQ(outcome.code, 0) << arguments << "\n" << outcome.both();
  return Json::parse(outcome.out);
}

double gigabytes(const Json& engine) {
  return 1e-9 * engine.at("model_states").get<double>();
}

TEST(Plan, PrintsThePublishedMemoryTable) {
  const Json json = plan("--params 7.5b --world 64 --precision fp16");
  EXPECT_EQ(json.at("layers"), 33);
  EXPECT_EQ(json.at("width"), 4288);
  const std::map<std::string, double> published = {
      {"ddp", 120}, {"zero1", 31.4}, {"zero2", 16.6}, {"zero3", 1.9}};
  for (const Json& engine : json.at("engines")) {
    const auto found = published.find(engine.at("engine"));
    if (found == published.end())
      continue;
    EXPECT_NEAR(gigabytes(engine), found->second, 0.06) << found->first;
  }
  const Outcome text = gpt2("plan --params 7.5b --world 64 --precision fp16 --engine ddp,zero3");
  for (const char* part :
       {"7.503 billion", "64 ranks, fp16", "ddp           120", "all_reduce 29.54 sent"})
    EXPECT_NE(text.out.find(part), std::string::npos) << part << "\n" << text.out;
}

TEST(Plan, TakesWhatItIsAskedFor) {
  const std::string small = "--size nano --vocab 256 --engine zero2 --world 4 ";
  const auto figure = [](const Json& json, const char* category) {
    return json.at("engines").at(0).at("memory").at(category).get<uint64_t>();
  };
  const Json one = plan(small);
  EXPECT_EQ(figure(plan(small + "--micro-batch 3"), "data"), 3 * figure(one, "data"));
  EXPECT_GT(figure(plan(small + "--context 128"), "activations"), figure(one, "activations"));
  EXPECT_EQ(2 * figure(plan(small + "--optimizer lion"), "optimizer"), figure(one, "optimizer"));
  EXPECT_LT(figure(plan(small + "--bucket-bytes 16KiB"), "buckets"), figure(one, "buckets"));
  EXPECT_GT(figure(plan(small + "--micro-steps 2"), "accumulation"), 0u);
  const Json by_count = plan("--params 100m --context 512 --vocab 1000 --engine ddp");
  EXPECT_EQ(by_count.at("context"), 512);
  EXPECT_EQ(by_count.at("vocab"), 1000);
  EXPECT_EQ(plan(small + "--reduction ring").at("engines").size(), 1u);
}

TEST(Plan, EstimatesByTheDevicesFigures) {
  std::map<std::string, double> seconds;
  for (const char* device : {"a100", "h100", "h200", "this"}) {
    const Json json =
        plan(std::string("--size 124m --world 8 --precision bf16 --engine ddp --device ") + device);
    EXPECT_EQ(json.at("device"), device);
    seconds[device] = json.at("engines").at(0).at("step_seconds");
    EXPECT_GT(seconds[device], 0) << device;
  }
  EXPECT_LT(seconds["h100"], seconds["a100"]);
  EXPECT_LT(seconds["h200"], seconds["h100"]);  // by its memory
  EXPECT_LT(seconds["a100"], seconds["this"]);
}

TEST(Plan, RefusesWhatItDoesntKnow) {
  const std::map<std::string, std::string> refusals = {
      {"--device b100", "device \"b100\" is none of a100, h100, h200, this"},
      {"--params 7.5x", "--params: \"7.5x\" isn't a count such as 7.5b"},
      {"--params 7.5b --layers 3", "--layers excludes --params"},
      {"--params 7.5b --size nano", "--size excludes --params"},
      {"--size huge", "there is no size \"huge\""},
      {"--engine zero4", "\"zero4\" is none of"},
      {"--engine auto", "auto is one of the others"},
      {"--engine ddp,ddp", "ddp is named twice"},
      {"--world 0", "--world"},
      {"--micro-batch 0", "--micro-batch"},
      {"--context -1", "--context"},
      {"--precision int8", "--precision: \"int8\" is none of f32, bf16, fp16"},
      {"--heads 5", "heads must divide width"},
      {"--elastic-determinism --world 3", "a power of two"},
  };
  for (const auto& [arguments, message] : refusals) {
    const Outcome outcome = gpt2("plan " + arguments);
    EXPECT_EQ(outcome.code, 2) << arguments << "\n" << outcome.both();
    EXPECT_NE(outcome.err.find(message), std::string::npos) << arguments << "\n" << outcome.both();
  }
}

}  // namespace
}  // namespace sg::cli

// Engines through the executable: same bits, what receipts tell of them, precisions, the ring
// explained.
#include <gtest/gtest.h>

#include "cli/program.h"

namespace sg::cli {
namespace {

using Json = nlohmann::json;

struct Engines : testing::Test {
  void SetUp() override { write(folder / "text", small_text()); }
  std::string command(const std::string& more) const {
    return "train" + std::string(tiny) + "--data " + (folder / "text") + " --val-fraction 0 " +
           (more.find("--steps") == std::string::npos ? "--steps 6 " : "") +
           "--bucket-bytes 8KiB --receipt " + (folder / "receipt") + " " + more;
  }
  Json run(const std::string& more) const {
    const Outcome outcome = gpt2(command(more));
    EXPECT_EQ(outcome.code, 0) << more << "\n" << outcome.both();
    return read_json(folder / "receipt");
  }
  static void expect_same_bits(const Json& a, const Json& b) {
    for (const char* key : {"loss_bits", "params_sha256"})
      EXPECT_EQ(a.at(key), b.at(key)) << key;
  }
  Folder folder;
};

TEST_F(Engines, HaveTheBitsOfDdpInBothOrdersOfAccumulation) {
  for (const char* order : {"local_first", "ranks_first"}) {
    const std::string more =
        std::string("--ranks 3 --global-batch 18 --clip 0.5 --accumulation ") + order;
    const Json ddp = run(more + " --engine ddp");
    for (const char* engine : {"dp", "zero1", "zero2", "zero3"}) {
      SCOPED_TRACE(engine + std::string(" ") + order);
      expect_same_bits(ddp, run(more + " --engine " + engine));
    }
  }
}

TEST_F(Engines, OfOneRankAreNone) {
  const Json none = run("--engine none");
  for (const char* engine : {"dp", "ddp", "zero2"})
    expect_same_bits(none, run(std::string("--engine ") + engine));
}

TEST_F(Engines, HaveTheSameBitsIn16Bits) {
  for (const char* precision : {"bf16", "fp16"}) {
    const std::string more = std::string("--ranks 2 --precision ") + precision;
    const Json ddp = run(more + " --engine ddp");
    EXPECT_EQ(ddp.at("precision"), precision);
    EXPECT_EQ(ddp.at("loss_scale"), Json(std::vector<double>(6, precision[0] == 'f' ? 65536 : 1)));
    EXPECT_EQ(ddp.at("skipped"), Json(std::vector<Json>(6)));
    EXPECT_EQ(ddp.at("memory").at("0").at("parameters"), 2 * ddp.at("parameters").get<uint64_t>());
    expect_same_bits(ddp, run(more + " --engine zero3"));
  }
  const Outcome outcome = gpt2(command("--precision fp16 --engine ddp"));
  EXPECT_NE(outcome.out.find("precision fp16: products by "), std::string::npos) << outcome.both();
}

TEST_F(Engines, OtherReductionsStayCloseToTheOrderedOne) {
  const std::string more = "--ranks 3 --engine ddp --steps 10 --reduction ";
  const auto ordered = run(more + "ordered").at("loss").get<std::vector<double>>();
  ASSERT_EQ(ordered.size(), 10u);
  for (const char* reduction : {"ring", "native"}) {
    const auto loss = run(more + reduction).at("loss").get<std::vector<double>>();
    ASSERT_EQ(loss.size(), ordered.size());
    for (size_t i = 0; i < loss.size(); ++i)
      EXPECT_NEAR(loss[i], ordered[i], 1e-6 * ordered[i]) << reduction << i;
  }
}

TEST_F(Engines, ElasticDeterminismGivesAnyNumberOfRanksTheSameBits) {
  for (const char* precision : {"f32", "bf16", "fp16"}) {
    SCOPED_TRACE(precision);
    const std::string more =
        "--elastic-determinism --global-batch 16 --dropout 0.1 --clip 0.5 --schedule constant "
        "--precision " +
        std::string(precision);
    const Json one = run(more);
    EXPECT_EQ(one.at("numerics").at("micro_batches"), "8");
    expect_same_bits(one, run(more + " --engine ddp --ranks 2"));
    expect_same_bits(one, run(more + " --engine zero1 --ranks 8"));
    const std::string saved = more + " --out " + (folder / precision);
    run(saved + " --engine zero2 --ranks 4 --steps 2");
    run(saved + " --engine zero3 --ranks 2 --steps 4 --resume");
    expect_same_bits(one, run(saved + " --engine ddp --ranks 8 --resume"));
  }
  const std::string saved = "--elastic-determinism --out " + (folder / "f32");
  const auto refused = [&](int code, const std::string& more, const std::string& message) {
    const Outcome outcome = gpt2(command(more));
    EXPECT_EQ(outcome.code, code) << outcome.both();
    EXPECT_NE(outcome.err.find(message), std::string::npos) << outcome.both();
  };
  refused(3,
          saved + " --dropout 0.1 --clip 0.5 --schedule constant --global-batch 8 --resume",
          "micro_batches 8, this run has 4");
  refused(2, "--elastic-determinism --engine ddp --ranks 3", "a power of two, not 3");
  refused(2,
          "--elastic-determinism --engine ddp --ranks 4 --global-batch 12",
          "--global-batch 12 isn't --micro-batch 2");
}

TEST_F(Engines, OneReaderScattersUnderDp) {
  const Json traffic = run("--ranks 2 --engine dp").at("traffic");
  const uint64_t bytes = 2 * 6 * 2 * 16 * 4;  // tokens and targets, steps, rows, context, i32
  EXPECT_EQ(traffic.at("0").at("scatter").at("metrics").at("sent"), bytes);
  EXPECT_EQ(traffic.at("1").at("scatter").at("metrics").at("received"), bytes);
}

TEST_F(Engines, Zero1sAllReduceCostsTrafficAndNoBits) {
  const Json scattered = run("--ranks 2 --engine zero1");
  const Json reduced = run("--ranks 2 --engine zero1 --zero1-reduce all_reduce");
  expect_same_bits(scattered, reduced);
  const auto sent = [](const Json& receipt, const char* operation) {
    return receipt.at("traffic").at("0").at(operation).at("step").at("sent").get<uint64_t>();
  };
  const uint64_t phi =
      4 * 6 * scattered.at("parameters").get<uint64_t>();  // bytes that all steps' gradients have
  EXPECT_EQ(sent(reduced, "all_reduce"), phi);             // 2fφ
  EXPECT_EQ(sent(scattered, "all_gather"), sent(reduced, "all_gather"));
  EXPECT_FALSE(reduced.at("traffic").at("0").contains("reduce_scatter"));
}

TEST_F(Engines, WrongWordsAreUsageErrors) {
  for (const char* option : {"--precision", "--zero1-reduce", "--on-nonfinite", "--engine"}) {
    const Outcome outcome = gpt2(command(option + std::string(" zero4")));
    EXPECT_EQ(outcome.code, 2) << option;
    EXPECT_NE(outcome.err.find("\"zero4\" is n"), std::string::npos) << outcome.both();
  }
}

TEST_F(Engines, TheRingIsExplained) {
  const Outcome outcome = gpt2("compare --explain ring");
  EXPECT_EQ(outcome.code, 0) << outcome.both();
  EXPECT_NE(
      outcome.out.find(
          "rank 0 has the sum of block B, rank 1 has the sum of block C, rank 2 has the sum of "
          "block A"),
      std::string::npos)
      << outcome.both();
  EXPECT_EQ(gpt2("compare --explain ring --ranks 9").code, 2);
}

}  // namespace
}  // namespace sg::cli

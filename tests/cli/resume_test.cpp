// A run that ends before its time goes on as if it hadn't: killed at any moment, on another engine,
// on other ranks, saved beside training.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <iostream>
#include <random>

#include "cli/program.h"
#include "core/io/hash.h"
#include "dist/numerics_rules.h"

namespace sg::cli {
namespace {

using Json = nlohmann::json;

// A kill may fall between a first checkpoint's name and `latest`.
bool holds_checkpoint(const std::string& out) {
  if (!std::filesystem::exists(out))
    return false;
  for (const auto& entry : std::filesystem::directory_iterator(out)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("step-") && name.find(".tmp-") == std::string::npos)
      return true;
  }
  return false;
}

struct Resume : testing::Test {
  void SetUp() override { write(folder / "text", small_text()); }
  std::string command(const std::string& more) const {
    return "train" + std::string(tiny) + "--data " + (folder / "text") +
           " --val-fraction 0 --steps 16 --ranks 2 --bucket-bytes 8KiB --accumulation ranks_first "
           "--receipt " +
           (folder / "receipt") + " " + more;
  }
  // The receipt of a run that must succeed.
  Json run(const std::string& more) const {
    std::filesystem::remove(folder / "receipt");
    const Outcome outcome = gpt2(command(more));
    EXPECT_EQ(outcome.code, 0) << more << "\n" << outcome.both();
    return read_json(folder / "receipt");
  }
  Json run_with_default_warmup(const std::string& more) const {
    std::string arguments = command(more);
    arguments.erase(arguments.find("--warmup 2"), std::string("--warmup 2").size());
    const Outcome outcome = gpt2(arguments);
    EXPECT_EQ(outcome.code, 0) << outcome.both();
    return read_json(folder / "receipt");
  }
  static void expect_same_bits(const Json& a, const Json& b) {
    ASSERT_TRUE(a.is_object() && b.is_object());
    for (const char* key : {"loss_bits", "params_sha256"})
      EXPECT_EQ(a.at(key), b.at(key)) << key;
  }
  Folder folder;
};

// Level D1. The moment is anything from before the first save to after the last one.
TEST_F(Resume, AfterAKillAtARandomMomentEveryEngineHasTheBitsOfTheUninterruptedRun) {
  const unsigned seed = std::random_device{}();
  std::cout << "seed " << seed << "\n";
  std::mt19937 random(seed);
  for (const char* precision : {"f32", "bf16", "fp16"}) {
    const std::string numerics =
        std::string(" --dropout 0.1 --global-batch 8 --precision ") + precision;
    const auto begin = std::chrono::steady_clock::now();
    const Json whole = run("--engine ddp --save-every 3 --out " +
                           (folder / ("whole" + std::string(precision))) + numerics);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    for (const char* engine : {"dp", "ddp", "zero1", "zero2", "zero3"}) {
      const double after = took.count() * std::uniform_real_distribution<>(0.1, 1)(random);
      const std::string beside = random() % 2 ? " --async-save" : "";
      SCOPED_TRACE(testing::Message() << engine << " " << precision << beside << " killed after "
                                      << after << " s of " << took.count() << ", seed " << seed);
      const std::string out = folder / (std::string(engine) + precision);
      const std::string more =
          " --engine " + std::string(engine) + " --save-every 3 --out " + out + numerics + beside;
      gpt2_interrupted(command(more), {SIGKILL, {}, after});
      expect_same_bits(whole, run(more + (holds_checkpoint(out) ? " --resume" : "")));
    }
  }
}

TEST_F(Resume, OnAnotherEngineGoesOnWithTheSameBits) {
  for (const char* precision : {"f32", "fp16"}) {
    const std::string numerics = std::string(" --clip 0.5 --precision ") + precision;
    const Json whole = run("--engine ddp" + numerics);
    const std::string more = " --save-every 3 --out " + (folder / precision) + numerics;
    gpt2_interrupted(command("--engine ddp" + more),
                     {SIGKILL, folder / (precision + std::string("/step-000003"))});
    gpt2_interrupted(command("--engine zero3 --partition contiguous --resume" + more),
                     {SIGKILL, folder / (precision + std::string("/step-000009"))});
    gpt2_interrupted(command("--engine zero1 --resume" + more),
                     {SIGKILL, folder / (precision + std::string("/step-000012"))});
    expect_same_bits(whole, run("--engine dp --resume" + more));
    expect_same_bits(whole, run("--engine zero2 --resume" + more));
  }
}

TEST_F(Resume, OnAnotherNumberOfRanksIsRefusedUnlessAccepted) {
  const std::string more = " --save-every 6 --out " + (folder / "run");
  const Json first = run("--engine zero2 --global-batch 12" + more);
  const Outcome refused = gpt2(command("--engine zero3 --ranks 3 --steps 20 --resume" + more));
  EXPECT_EQ(refused.code, 3) << refused.both();
  EXPECT_NE(refused.err.find("world 2, this run has 3 (--accept-change world"), std::string::npos)
      << refused.err;
  const Json on =
      run("--engine zero3 --ranks 3 --steps 20 --resume --accept-change world,steps" + more);
  EXPECT_EQ(on.at("numerics").at("micro_steps"), "2") << "the global batch is the run's";
  EXPECT_EQ(on.at("loss_bits").size(), 20u);
  for (size_t i = 0; i < 16; ++i)
    EXPECT_EQ(on.at("loss_bits")[i], first.at("loss_bits")[i]);
  const Outcome uneven = gpt2(
      command("--engine zero3 --ranks 4 --steps 24 --resume --accept-change world,steps" + more));
  EXPECT_EQ(uneven.code, 2) << uneven.both();
  EXPECT_NE(uneven.err.find("12"), std::string::npos) << uneven.err;
  run("--engine zero3 --ranks 4 --steps 24 --resume --accept-change world,steps --global-batch 16" +
      more);
}

// A rate that depends on the length of the whole schedule is another run's when the length changes.
TEST_F(Resume, WithAnotherLengthIsRefusedUnlessTheScheduleMayBeStretched) {
  for (const char* kind : {"cosine", "linear", "wsd", "WarmupDecayLR", "WarmupCosineLR"}) {
    SCOPED_TRACE(kind);
    const std::string more =
        " --engine ddp --schedule " + std::string(kind) + " --out " + (folder / kind);
    EXPECT_EQ(run("--steps 4" + more).at("numerics").at("steps"), "4");
    const Outcome refused = gpt2(command("--steps 8 --resume" + more));
    EXPECT_EQ(refused.code, 3) << refused.both();
    EXPECT_NE(refused.err.find("steps 4, this run has 8 (--accept-change steps"), std::string::npos)
        << refused.err;
    const Outcome stretched = gpt2(command("--steps 8 --resume --accept-change steps" + more));
    EXPECT_EQ(stretched.code, 0) << stretched.both();
    EXPECT_NE(stretched.out.find("resumed with steps 8, saved with 4"), std::string::npos)
        << stretched.out;
  }
  for (const char* kind : {"constant", "WarmupLR"}) {
    const std::string more =
        " --engine ddp --schedule " + std::string(kind) + " --out " + (folder / kind);
    EXPECT_FALSE(run("--steps 4" + more).at("numerics").contains("steps")) << kind;
    expect_same_bits(run("--steps 8 --resume" + more),
                     run("--steps 8 --engine ddp --schedule " + std::string(kind)));
  }
}

// The warm-up that nobody gave is the run's, however long its schedule becomes.
TEST_F(Resume, KeepsAWarmUpThatFollowedFromTheLength) {
  const auto schedule = [&](const std::string& more) {
    return run_with_default_warmup(more + " --engine ddp --out " + (folder / "run"))
        .at("numerics")
        .at("schedule");
  };
  EXPECT_EQ(schedule("--steps 4"), "cosine lr 0.001 to 0.0001 warmup 4");
  EXPECT_EQ(schedule("--steps 8 --resume --accept-change steps"),
            "cosine lr 0.001 to 0.0001 warmup 4");
}

// A commit that changes bits raises the number of the rules; a checkpoint from before there was one
// has rules 1.
TEST_F(Resume, UnderOtherRulesIsRefusedUnlessAccepted) {
  const std::string more = " --engine ddp --save-every 4 --out " + (folder / "run");
  run(more + " --steps 4");
  const std::string manifest = folder / "run/step-000004/manifest.json";
  const Json today = read_json(manifest);
  ASSERT_EQ(today.at("numerics").at("rules"), std::to_string(dist::numerics_rules));
  const auto resumed = [&](Json changed, const std::string& accept) {
    changed.erase("sha256");
    changed["sha256"] = sha256(changed.dump());
    write(manifest, changed.dump());
    return gpt2(command("--steps 4 --resume" + accept + more));
  };
  Json before = today, after = today;
  for (const char* key : {"rules", "steps"})
    before["numerics"].erase(key);
  const std::string now = std::to_string(dist::numerics_rules),
                    next = std::to_string(dist::numerics_rules + 1);
  after["numerics"]["rules"] = next;
  for (const auto& [changed, rules] : {std::pair{before, std::string("1")}, {after, next}}) {
    const Outcome refused = resumed(changed, "");
    EXPECT_EQ(refused.code, 3) << refused.both();
    EXPECT_NE(refused.err.find(std::string("rules ") + rules + ", this run has " + now +
                               " (--accept-change rules"),
              std::string::npos)
        << refused.err;
    EXPECT_EQ(resumed(changed, " --accept-change rules").code, 0);
  }
  EXPECT_EQ(resumed(today, "").code, 0);
  const Outcome unknown = resumed(today, " --accept-change rule");
  EXPECT_EQ(unknown.code, 2) << unknown.both();
  EXPECT_NE(unknown.err.find("none of world, isa, library, rules, steps"), std::string::npos)
      << unknown.err;
}

TEST_F(Resume, SavingBesideTrainingChangesNoBitAndTheLastSaveIsWaitedFor) {
  const Json whole = run("--engine zero2");
  const std::string more = "--engine zero2 --async-save --save-every 1 --out " + (folder / "run");
  expect_same_bits(whole, run(more));
  expect_same_bits(whole, run(more + " --resume"));
  EXPECT_EQ(read(folder / "run/latest"), "step-000016\n");
  size_t saves = 0;
  std::istringstream lines(read(folder / "run/metrics.jsonl"));
  for (std::string line; std::getline(lines, line);)
    saves += Json::parse(line).contains("save_stall_ms");
  EXPECT_EQ(saves, 16u);
}

TEST_F(Resume, ASaveBesideTrainingThatFailsEndsTheRunAndTheOldOneStays) {
  run("--engine ddp --steps 2 --schedule constant --out " + (folder / "run"));
  const std::string more =
      " --engine ddp --schedule constant --async-save --save-every 1 --resume --out " +
      (folder / "run");
  const Outcome full = gpt2(command("--steps 200" + more), 16 << 10);  // shards are larger
  EXPECT_EQ(full.code, 4) << full.both();
  EXPECT_NE(full.err.find("step-000003.tmp-"), std::string::npos) << full.err;
  EXPECT_NE(full.err.find("File too large"), std::string::npos) << full.err;
  EXPECT_EQ(read(folder / "run/latest"), "step-000002\n");
  for (const auto& entry : std::filesystem::directory_iterator(folder / "run"))
    EXPECT_EQ(entry.path().string().find(".tmp-"), std::string::npos) << entry.path();
  run(more);
}

}  // namespace
}  // namespace sg::cli

// Each mistake ends in one clear message and its exit code, and loses nothing.
#include <gtest/gtest.h>

#include <filesystem>

#include "cli/program.h"

namespace sg::cli {
namespace {

struct BadInput : testing::Test {
  void SetUp() override { write(folder / "text", small_text()); }
  std::string train(const std::string& more) const {
    return "train" + std::string(tiny) + "--steps 4 --data " + (folder / "text") + " " + more;
  }
  static void expect(const std::string& arguments,
                     int code,
                     const std::vector<std::string>& words) {
    const Outcome outcome = gpt2(arguments);
    EXPECT_EQ(outcome.code, code) << arguments << "\n" << outcome.both();
    for (const std::string& word : words)
      EXPECT_NE(outcome.err.find(word), std::string::npos)
          << "\"" << word << "\" isn't in: " << outcome.err;
  }
  Folder folder;
};

TEST_F(BadInput, OptionsThatDontExistOrDontParse) {
  expect("", 2, {"subcommand"});
  expect("trian", 2, {"trian", "the nearest is train"});
  expect(train("--stepz 3"), 2, {"there is no option --stepz; the nearest is --steps"});
  expect("--hlep", 2, {"there is no option --hlep; the nearest is --help"});
  expect("train --hlep", 2, {"train: there is no option --hlep; the nearest is --help"});
  expect("generate --from x --temprature=3", 2, {"--temprature; the nearest is --temperature"});
  expect("generate --from x --xyz", 2, {"there is no option --xyz (--help lists"});
  expect(train("--steps 0"), 2, {"--steps"});
  expect(train("--steps three"), 2, {"--steps"});
  expect(train("--lr nan"), 2, {"--lr", "nan"});
  expect(train("--optimizer adamx"), 2, {"--optimizer", "adamx"});
  expect(train("--engine zero4"), 2, {"zero4"});
  expect(train("--device-memory lots"), 2, {"--device-memory", "lots"});
  expect(train("--size huge"), 2, {"huge", "nano"});
  expect(train("--overlap maybe"), 2, {"--overlap", "maybe"});
  expect(train("--warmup 10"), 2, {"warmup 10", "steps 4"});
  expect(train("--lr 1e-5"), 2, {"min_lr 0.0001", "lr 1e-05"});
  expect(train("--decay 2"), 2, {"--decay 2", "cosine"});
  expect(train("--schedule wsd --decay 3"), 2, {"warmup 2", "decay 3", "steps 4"});
}

TEST_F(BadInput, SizesThatDontDivide) {
  expect(train("--heads 3"), 2, {"3 heads", "width 16"});
  expect(train("--global-batch 5"), 2, {"--global-batch 5", "--micro-batch 2"});
  expect(train("--ranks 2"), 2, {"engine none", "2"});
}

TEST_F(BadInput, Data) {
  expect(train("--data " + (folder / "absent")), 3, {"absent"});
  write(folder / "empty", "");
  expect(train("--data " + (folder / "empty")), 3, {"empty"});
  write(folder / "short", "too short");
  expect(train("--data " + (folder / "short")), 3, {"short"});
  write(folder / "binary", std::string("\xff\xfe\x00\x80 no text", 12) + small_text());
  expect(train("--data " + (folder / "binary")), 3, {"binary"});
  std::string ids(4000, '\0');
  ids[2000] = 101;  // token 1000 is 101
  write(folder / "ids.bin", ids);
  const std::string tokens =
      "train --size nano --layers 1 --heads 1 --width 8 --context 8 --micro-batch 2 --steps 2 ";
  expect(tokens + "--vocab 101 --data " + (folder / "ids.bin"), 3, {"ids.bin", "101", "1000"});
  expect(train("--vocab 5"), 2, {"--vocab 5"});
}

TEST_F(BadInput, ADeviceTooSmallNamesWhatWasAskedHeldAndTheCapacity) {
  expect(train("--device-memory 64KiB"), 6, {"asked", "parameters", "64.00 KiB"});
}

TEST_F(BadInput, ALossThatIsntFiniteNamesItsStep) {
  expect(train("--lr 1e30 --min-lr 1e30 --schedule constant --warmup 0 --steps 50"), 5, {"step"});
}

TEST_F(BadInput, ResumeWithoutACheckpoint) {
  expect(train("--out " + (folder / "nothing") + " --resume"), 3, {"nothing"});
  expect(train("--resume"), 2, {"--resume", "--out"});
  expect("generate --from " + (folder / "nothing"), 3, {"nothing"});
}

struct BadCheckpoint : BadInput {
  void SetUp() override {
    BadInput::SetUp();
    ASSERT_EQ(gpt2(train("--out " + run)).code, 0);
    for (const auto& entry : std::filesystem::directory_iterator(run + "/step-000004"))
      if (entry.path().extension() == ".safetensors")
        shard = entry.path();
    ASSERT_FALSE(shard.empty());
  }
  std::string resumed(const std::string& more = "") const {
    return train("--out " + run + " --resume --steps 6 --accept-change steps " + more);
  }
  const std::string run = folder / "run";
  std::string shard;
};

TEST_F(BadCheckpoint, Corrupt) {
  std::string bytes = read(shard);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  write(shard, bytes);
  expect(resumed(), 3, {"shard-"});
}

TEST_F(BadCheckpoint, Truncated) {
  const std::string bytes = read(shard);
  write(shard, bytes.substr(0, bytes.size() / 2));
  expect(resumed(), 3, {"shard-"});
}

TEST_F(BadCheckpoint, OfAnotherModelOrRun) {
  expect(resumed("--width 32"), 3, {"width 16", "32"});
  expect(resumed("--seed 9"), 3, {"seed 1", "9"});
  expect(resumed("--lr 0.5"), 3, {"schedule", "0.5"});
  write(folder / "text", small_text() + "more");
  expect(resumed(), 3, {"data"});
}

TEST_F(BadCheckpoint, ShorterThanWhatIsThere) {
  expect(
      train("--out " + run + " --resume --steps 2"), 3, {"steps 4", "2", "--accept-change steps"});
  expect(train("--out " + run + " --resume --accept-change steps --steps 2"),
         3,
         {"4 steps", "--steps", "2"});
}

TEST_F(BadCheckpoint, AFullDiskFailsTheSaveAndKeepsTheOldCheckpoint) {
  const std::string before = read(run + "/latest");
  const Outcome outcome = gpt2(resumed(), 30000);
  EXPECT_EQ(outcome.code, 4) << outcome.both();
  EXPECT_NE(outcome.err.find("shard-"), std::string::npos) << outcome.err;
  EXPECT_EQ(read(run + "/latest"), before);
  for (const auto& entry : std::filesystem::directory_iterator(run))
    EXPECT_EQ(entry.path().string().find(".tmp-"), std::string::npos) << entry.path();
  EXPECT_EQ(gpt2(resumed()).code, 0) << "the old one still resumes";
}

TEST_F(BadInput, PlacesThatCantBeWritten) {
  expect(train("--out /proc/shardgrad"), 4, {"/proc/shardgrad"});
  expect(train("--receipt /proc/receipt"), 4, {"/proc/receipt"});
}

}  // namespace
}  // namespace sg::cli

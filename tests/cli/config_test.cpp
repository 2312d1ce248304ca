// --config through the executable: the bits of the command line that says the same, which wins
// where both speak.
#include <gtest/gtest.h>

#include "cli/program.h"

namespace sg::cli {
namespace {

using Json = nlohmann::json;

struct ConfigFile : testing::Test {
  void SetUp() override {
    write(folder / "text", small_text());
    write(folder / "ds.json", R"({
      "train_micro_batch_size_per_gpu": 3, "train_batch_size": 12, "gradient_clipping": 0.5,
      "steps_per_print": 2,
      "zero_optimization": {"stage": 2, "reduce_bucket_size": 4096, "accumulation": "local_first"},
      "bf16": {"enabled": true}, "comm": {"timeout_seconds": 60},
      "optimizer": {"type": "AdamW", "params": {"lr": 2e-3, "betas": [0.8, 0.9],
                                              "weight_decay": 0.05}}})");
  }
  std::string command(const std::string& more) const {
    return "train --size nano --layers 2 --heads 2 --width 16 --context 16 --tokenizer chars "
           "--threads 1 --ranks 2 "
           "--steps 6 --val-fraction 0 --data " +
           (folder / "text") + " --receipt " + (folder / "receipt") + " " + more;
  }
  Outcome run(const std::string& more, Json& receipt) const {
    const Outcome outcome = gpt2(command(more));
    EXPECT_EQ(outcome.code, 0) << more << "\n" << outcome.both();
    receipt = read_json(folder / "receipt");
    return outcome;
  }
  Folder folder;
};

TEST_F(ConfigFile, HasTheBitsOfTheEqualCommandLine) {
  Json by_file, by_words;
  const Outcome outcome = run("--config " + (folder / "ds.json"), by_file);
  EXPECT_EQ(outcome.out.find("wins over"), std::string::npos) << outcome.out;
  for (const char* line : {"\nstep 2/6", "\nstep 4/6", "\nstep 6/6"})
    EXPECT_NE(outcome.out.find(line), std::string::npos) << outcome.out;
  EXPECT_EQ(outcome.out.find("\nstep 3/6"), std::string::npos)
      << "steps_per_print: " << outcome.out;
  run("--micro-batch 3 --global-batch 12 --clip 0.5 --engine zero2 --bucket-bytes 8KiB "
      "--accumulation local_first "
      "--precision bf16 --optimizer adamw --lr 2e-3 --beta1 0.8 --beta2 0.9 --weight-decay 0.05 "
      "--schedule constant "
      "--warmup 0 --min-lr 0",
      by_words);
  for (const char* key :
       {"engine", "precision", "numerics", "loss_bits", "params_sha256", "traffic", "memory"})
    EXPECT_EQ(by_file.at(key), by_words.at(key)) << key;
}

TEST_F(ConfigFile, LosesToTheCommandLineAndThatIsSaid) {
  Json receipt;
  const Outcome outcome = run(
      "--engine ddp --clip 1 --precision f32 --global-batch 24 --config " + (folder / "ds.json"),
      receipt);
  for (const char* line : {"--engine ddp wins over zero_optimization.stage 2 of ",
                           "--clip 1 wins over gradient_clipping 0.5",
                           "--precision f32 wins over bf16.enabled true",
                           "--global-batch 24 wins over train_batch_size 12"})
    EXPECT_NE(outcome.out.find(line), std::string::npos) << line << "\n" << outcome.out;
  EXPECT_EQ(receipt.at("engine"), "ddp");
  EXPECT_EQ(receipt.at("precision"), "f32");
  EXPECT_EQ(receipt.at("numerics").at("clip"), "1");
  EXPECT_EQ(receipt.at("numerics").at("micro_steps"), "4");
}

TEST_F(ConfigFile, IsReadByBenchAndCompare) {
  const std::string small =
      " --size nano --layers 1 --heads 2 --width 16 --context 16 --threads 1 --ranks 2 --steps 3 "
      "--receipt " +
      (folder / "receipt") + " --config " + (folder / "ds.json");
  const Outcome bench = gpt2("bench" + small);
  EXPECT_EQ(bench.code, 0) << bench.both();
  EXPECT_EQ(read_json(folder / "receipt").at("numerics").at("optimizer"),
            "adamw beta 0.8 0.9 eps 1e-08 decay 0.05");
  const Outcome compare = gpt2("compare --engines ddp,zero3 --data " + (folder / "text") + small);
  EXPECT_EQ(compare.code, 0) << compare.both();
  EXPECT_NE(compare.out.find("--engines ddp,zero3 wins over zero_optimization.stage 2"),
            std::string::npos)
      << compare.out;
  EXPECT_EQ(read_json(folder / "receipt").at("numerics").at("micro_steps"), "2");
}

TEST_F(ConfigFile, NumericsAreInTheReceipt) {
  const auto numerics = [&](const std::string& file) {
    write(folder / "numerics.json", file);
    Json receipt;
    run("--engine zero1 --config " + (folder / "numerics.json"), receipt);
    return receipt.at("numerics");
  };
  EXPECT_EQ(numerics(R"({"prescale_gradients": true})").at("gradient_division"), "at the loss");
  EXPECT_EQ(numerics(R"({"gradient_predivide_factor": 1.5})").at("gradient_division"),
            "by 1.5 at the loss");
  EXPECT_EQ(numerics(R"({"communication_data_type": "bf16"})").at("communication"), "bf16");
  EXPECT_EQ(numerics("{}").at("communication"), "f32");
  EXPECT_EQ(numerics(R"({"fp16": {"enabled": true, "initial_scale_power": 8}})").at("loss_scale"),
            "from 2^8 window 1000 hysteresis 2 minimum 1");
  EXPECT_EQ(numerics(R"({"fp16": {"enabled": true, "loss_scale": 64}})").at("loss_scale"),
            "static 64");
  EXPECT_EQ(numerics(R"({"elastic_determinism": true})").at("elastic_determinism"), "on");
}

TEST_F(ConfigFile, MistakesAreUsageErrors) {
  const auto expect = [&](const std::string& more, int code, const std::string& words) {
    const Outcome outcome = gpt2(command(more));
    EXPECT_EQ(outcome.code, code) << more;
    EXPECT_NE(outcome.err.find(words), std::string::npos) << outcome.both();
  };
  expect("--config " + (folder / "absent.json"), 3, "absent.json");
  expect("--ranks 5 --config " + (folder / "ds.json"),
         2,
         "train_batch_size 12 isn't train_micro_batch_size_per_gpu 3 × gradient_accumulation_steps "
         "1 × 5 ranks = 15");
  write(folder / "wrong.json", R"({"zero_optimization": {"stagge": 2}})");
  expect("--config " + (folder / "wrong.json"),
         2,
         "zero_optimization.stagge; the nearest is zero_optimization.stage");
}

}  // namespace
}  // namespace sg::cli

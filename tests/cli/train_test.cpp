// What `train` promises: bits, receipts, resuming, stopping.
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <set>

#include "cli/program.h"

namespace sg::cli {
namespace {

// A folder with a text, and runs in it.
struct Train : testing::Test {
  void SetUp() override { write(folder / "text", small_text()); }
  std::string command(const std::string& name, const std::string& more = "") const {
    return "train" + std::string(tiny) + "--data " + (folder / "text") + " --steps 12 --receipt " +
           (folder / name) + " " + more;
  }
  // The receipt of a run that must succeed.
  nlohmann::json run(const std::string& name, const std::string& more = "") const {
    const Outcome outcome = gpt2(command(name, more));
    EXPECT_EQ(outcome.code, 0) << outcome.both();
    return read_json(folder / name);
  }
  static void expect_same_bits(const nlohmann::json& a, const nlohmann::json& b) {
    for (const char* key : {"loss_bits", "validation", "params_sha256"})
      EXPECT_EQ(a.at(key), b.at(key)) << key;
  }
  Folder folder;
};

// At every start a line that one reads; all of it where it is asked for.
TEST_F(Train, TheNumericsAreALineAndAllOfThemWhereAskedFor) {
  const auto numerics_of = [&](const std::string& more) {
    const std::string out = gpt2(command("a", more)).out;
    const size_t begin = out.find("numerics: ");
    return begin == std::string::npos ? "" : out.substr(begin, out.find('\n', begin) - begin);
  };
  const std::string shown = numerics_of("");
  EXPECT_NE(shown.find("seed 1"), std::string::npos) << shown;
  EXPECT_LE(shown.size(), 200u) << shown;
  const std::string all = numerics_of("--verbose");
  for (const auto& [name, value] : read_json(folder / "a").at("numerics").items())
    EXPECT_NE(all.find(name + " "), std::string::npos) << name << " in " << all;
}

TEST_F(Train, TheReceiptHasEveryKey) {
  const nlohmann::json receipt = run("a");
  std::set<std::string> keys;
  for (const auto& [key, value] : receipt.items())
    keys.insert(key);
  const std::set<std::string> wanted = {"version",
                                        "model",
                                        "sizes",
                                        "parameters",
                                        "engine",
                                        "world",
                                        "precision",
                                        "seed",
                                        "steps",
                                        "numerics",
                                        "loss",
                                        "loss_bits",
                                        "validation",
                                        "params_sha256",
                                        "memory",
                                        "peak_rss_bytes",
                                        "tokens_per_second",
                                        "median_step_ms",
                                        "first_step_ms",
                                        "matmul_efficiency",
                                        "traffic",
                                        "comm_ms",
                                        "exposed_comm_ms",
                                        "recompute_ms"};
  EXPECT_EQ(keys, wanted);
  EXPECT_EQ(receipt["loss"].size(), 12u);
  EXPECT_LT(receipt["loss"][11], receipt["loss"][0]);
  EXPECT_EQ(receipt["validation"].size(), 1u);
  EXPECT_EQ(receipt["validation"][0]["step"], 12);
  EXPECT_TRUE(receipt["matmul_efficiency"].is_null());
  const auto parameters = receipt["parameters"].get<uint64_t>();
  EXPECT_EQ(receipt["memory"]["0"]["parameters"], 4 * parameters);
  EXPECT_EQ(receipt["memory"]["0"]["gradients"], 4 * parameters);
  EXPECT_EQ(receipt["memory"]["0"]["optimizer"], 8 * parameters);
}

TEST_F(Train, RecomputingChangesNoBitAndIsTimed) {
  const nlohmann::json plain = run("plain", "--dropout 0.1");
  EXPECT_EQ(plain["recompute_ms"], 0);
  EXPECT_FALSE(plain.contains("copies"));
  for (const std::string policy : {"selective", "every:2", "full", "full --cpu-checkpointing"}) {
    const nlohmann::json again = run("again", "--dropout 0.1 --recompute " + policy);
    expect_same_bits(again, plain);
    EXPECT_GT(again["recompute_ms"].get<double>(), 0) << policy;
    EXPECT_LT(again["memory"]["0"]["total"], plain["memory"]["0"]["total"]) << policy;
    const bool on_host = policy.ends_with("checkpointing");
    EXPECT_EQ(again.contains("copies"), on_host);
    if (!on_host)
      continue;
    EXPECT_GT(again["copies"]["0"]["to_host"], 0);
    EXPECT_EQ(again["copies"]["0"]["to_host"], again["copies"]["0"]["from_host"]);
    EXPECT_GT(again["host_memory"]["activations"], 0);
    EXPECT_GE(again["exposed_copy_ms"].get<double>(), 0);
  }
}

TEST_F(Train, RerunIsRunBitForBit) {
  expect_same_bits(run("a"), run("b"));
}

TEST_F(Train, ThreadsDontChangeBits) {
  const nlohmann::json one = run("a");
  expect_same_bits(one, run("b", "--threads 2"));
  expect_same_bits(one, run("c", "--threads 3"));
}

TEST_F(Train, DropoutIsTheSameForEveryThreadCountAndRerun) {
  const nlohmann::json plain = run("a"), dropped = run("b", "--dropout 0.2");
  EXPECT_NE(plain.at("loss_bits"), dropped.at("loss_bits"));
  expect_same_bits(dropped, run("c", "--dropout 0.2 --threads 2"));
}

TEST_F(Train, ResumeAfterKillIsTheUninterruptedRun) {
  const nlohmann::json whole = run("a", "--dropout 0.1 --eval-every 3");
  const std::string more = "--dropout 0.1 --eval-every 3 --save-every 2 --out " + (folder / "run");
  const Outcome killed =
      gpt2_interrupted(command("b", more), {SIGKILL, folder / "run/step-000004"});
  ASSERT_TRUE(killed.code == -SIGKILL || killed.code == 0) << killed.both();
  std::filesystem::remove(folder / "b");
  expect_same_bits(whole, run("b", more + " --resume"));
}

TEST_F(Train, AFinishedRunGivesItsReceiptAgain) {
  const std::string more = "--out " + (folder / "run");
  const nlohmann::json first = run("a", more);
  const nlohmann::json again = run("b", more + " --resume");
  expect_same_bits(first, again);
  EXPECT_EQ(first["median_step_ms"], again["median_step_ms"]);
}

TEST_F(Train, ASignalSavesAndEndsWithSuccess) {
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1}) {
    const std::string out = folder / ("run" + std::to_string(signal));
    const std::string more = " --steps 100000 --save-every 2 --out " + out;
    const Outcome stopped = gpt2_interrupted(command("a", more), {signal, out + "/latest"});
    EXPECT_EQ(stopped.code, 0) << stopped.both();
    EXPECT_NE(stopped.out.find("as asked, saved"), std::string::npos) << stopped.both();
    EXPECT_FALSE(std::filesystem::exists(folder / "a")) << "an unfinished run has no receipt";
  }
}

TEST_F(Train, ASecondRunInAFolderTakesItsPlaceWhereItIsTold) {
  const std::string more = "--out " + (folder / "run");
  const nlohmann::json first = run("a", more);
  expect_same_bits(first, run("b", more + " --overwrite"));
}

TEST_F(Train, EveryEngineHasTheSameBits) {
  const nlohmann::json ddp = run("a", "--engine ddp --ranks 2");
  for (const char* engine : {"dp", "zero1", "zero2", "zero3"}) {
    SCOPED_TRACE(engine);
    expect_same_bits(ddp, run("b", std::string("--ranks 2 --engine ") + engine));
  }
  expect_same_bits(run("c"), run("d", "--engine ddp"));
}

TEST_F(Train, MetricsHaveALineForEveryStepAlsoAfterAResume) {
  const std::string more = "--save-every 4 --out " + (folder / "run");
  gpt2_interrupted(command("a", more), {SIGKILL, folder / "run/step-000004"});
  run("a", more + " --resume");
  std::istringstream lines(read(folder / "run/metrics.jsonl"));
  std::vector<int64_t> steps;
  for (std::string line; std::getline(lines, line);) {
    const nlohmann::json json = nlohmann::json::parse(line);
    if (json.contains("loss"))
      steps.push_back(json.at("step"));
  }
  std::vector<int64_t> wanted(12);
  for (size_t i = 0; i < wanted.size(); ++i)
    wanted[i] = static_cast<int64_t>(i);
  EXPECT_EQ(steps, wanted);
}

TEST_F(Train, ATraceIsJson) {
  run("a", "--trace " + (folder / "trace"));
  EXPECT_TRUE(read_json(folder / "trace").contains("traceEvents"));
}

TEST_F(Train, EvalAndGenerateNeedOnlyTheFolder) {
  run("a", "--out " + (folder / "run"));
  const Outcome eval = gpt2("eval --from " + (folder / "run") + " --data " + (folder / "text"));
  EXPECT_EQ(eval.code, 0) << eval.both();
  EXPECT_NE(eval.out.find("validation loss"), std::string::npos);
  const std::string write =
      "generate --from " + (folder / "run") + " --prompt fall --tokens 40 --seed 3";
  const Outcome text = gpt2(write);
  EXPECT_EQ(text.code, 0) << text.both();
  EXPECT_EQ(text.out.substr(0, 4), "fall");
  EXPECT_EQ(text.out.size(), 4u + 40 + 1);
  EXPECT_EQ(text.out, gpt2(write).out);
}

// Validation on the way runs on gathered parameters; what is generated from the checkpoint is what
// ddp's generates.
TEST_F(Train, Zero3ValidatesSavesAndGeneratesAsDdpDoes) {
  std::map<std::string, std::string> written;
  for (const std::string engine : {"ddp", "zero3"}) {
    const std::string out = folder / ("run-" + engine);
    run(engine, "--ranks 2 --precision bf16 --eval-every 4 --engine " + engine + " --out " + out);
    const Outcome eval = gpt2("eval --from " + out + " --data " + (folder / "text"));
    const Outcome text = gpt2("generate --from " + out + " --prompt fall --tokens 40 --seed 3");
    EXPECT_EQ(eval.code + text.code, 0) << eval.both() << text.both();
    written[engine] = eval.out + text.out;
  }
  const nlohmann::json ddp = read_json(folder / "ddp"), zero3 = read_json(folder / "zero3");
  expect_same_bits(ddp, zero3);
  EXPECT_EQ(zero3.at("validation").size(), 3u);
  EXPECT_GT(zero3.at("traffic").at("0").at("all_gather").at("eval").at("sent"), 0);
  EXPECT_EQ(written["ddp"], written["zero3"]);
}

TEST_F(Train, ExportNeedsOnlyTheFolder) {
  run("a", "--engine zero3 --ranks 2 --precision bf16 --out " + (folder / "run"));
  const std::string from = "export --from " + (folder / "run"),
                    to = " --to " + (folder / "model.safetensors");
  const Outcome done = gpt2(from + to + " --dtype bf16");
  EXPECT_EQ(done.code, 0) << done.both();
  const std::string file = read(folder / "model.safetensors");
  ASSERT_GT(file.size(), 8u);
  const auto header = nlohmann::json::parse(file.substr(
      8, static_cast<unsigned char>(file[0]) + (static_cast<unsigned char>(file[1]) << 8)));
  uint64_t bytes = 0;
  for (const auto& [name, tensor] : header.items())
    if (name != "__metadata__")
      bytes = std::max(bytes, tensor.at("data_offsets")[1].get<uint64_t>());
  EXPECT_EQ(bytes, 2 * read_json(folder / "a").at("parameters").get<uint64_t>());
  EXPECT_EQ(gpt2(from).code, 2) << "--to is missing";
  EXPECT_EQ(gpt2(from + to + " --dtype f64").code, 2);
  EXPECT_EQ(gpt2("export --from " + (folder / "text") + to).code, 3);
  EXPECT_EQ(gpt2(from + " --to " + (folder / "none/model.safetensors")).code, 4);
}

TEST_F(Train, WeightsGoOutToHuggingFacesFormAndComeBack) {
  run("a", "--freeze block0.* --out " + (folder / "run"));
  const std::string out = folder / "theirs", from = " --from " + out;
  const Outcome exported = gpt2("export --from " + (folder / "run") + " --to " + out);
  EXPECT_EQ(exported.code, 0) << exported.both();
  const Outcome imported = gpt2("import" + from + " --to " + (folder / "again"));
  EXPECT_EQ(imported.code, 0) << imported.both();
  EXPECT_EQ(gpt2("eval --from " + (folder / "again") + " --data " + (folder / "ids.bin")).code, 3)
      << "no data";
  const Outcome trained = gpt2("train --tokenizer chars --steps 1 --data " + (folder / "text") +
                               " --eval-batches 1 --init-from " + out);
  EXPECT_EQ(trained.code, 0) << trained.both();
  EXPECT_NE(trained.out.find("begins with the "), std::string::npos) << trained.out;

  EXPECT_EQ(gpt2("train --layers 2 --init-from " + out).code, 2) << "decided twice";
  EXPECT_EQ(gpt2("train --steps 1 --freeze none*").code, 2);
  EXPECT_EQ(gpt2("import" + from + " --to " + (folder / "again")).code, 2) << "holds a run";
  EXPECT_EQ(gpt2("export --from " + (folder / "run") + " --to " + out).code, 4);
  test::put(out + "/config.json", "{}");
  EXPECT_EQ(gpt2("import" + from + " --to " + (folder / "b")).code, 3);
  EXPECT_EQ(gpt2("train --steps 1 --init-from " + out).code, 3);
}

TEST_F(Train, BenchMeasuresEfficiency) {
  const Outcome outcome = gpt2(
      "bench --size nano --layers 1 --width 32 --heads 2 --context 32 --vocab 100"
      " --micro-batch 2 --steps 4 --threads 1 --receipt " +
      (folder / "bench"));
  EXPECT_EQ(outcome.code, 0) << outcome.both();
  const nlohmann::json receipt = read_json(folder / "bench");
  EXPECT_GT(receipt.at("matmul_efficiency"), 0.0);
  EXPECT_GT(receipt.at("median_step_ms"), 0.0);
  EXPECT_GT(receipt.at("tokens_per_second"), 0.0);
}

TEST_F(Train, WithoutDataItReadsTheProjectsSources) {
  const Outcome outcome = gpt2("train --steps 2 --eval-batches 1 --receipt " + (folder / "a"));
  EXPECT_EQ(outcome.code, 0) << outcome.both();
  EXPECT_EQ(read_json(folder / "a")["sizes"]["vocab"], 256);
}

}  // namespace
}  // namespace sg::cli

// A run's folder is its own, results are written where their names lead, and what can be refused is
// refused before the first step.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <thread>

#include "cli/program.h"

namespace sg::cli {
namespace {

namespace fs = std::filesystem;

struct RunFolder : testing::Test {
  void SetUp() override {
    write(folder / "text", small_text());
    write(folder / "short", small_text().substr(0, 150));
  }
  std::string train(int steps, const std::string& more) const {
    return "train" + std::string(tiny) + "--data " + (folder / "text") + " --steps " +
           std::to_string(steps) + " " + more;
  }
  std::string out(const std::string& name = "w") const { return "--out " + (folder / name) + " "; }
  void expect_refused(const std::string& arguments, int code, const std::string& word) const {
    const Outcome outcome = gpt2(arguments);
    EXPECT_EQ(outcome.code, code) << arguments << "\n" << outcome.both();
    EXPECT_NE(outcome.err.find(word), std::string::npos) << arguments << "\n" << outcome.both();
    EXPECT_EQ(outcome.out.find("step "), std::string::npos) << "refused late: " << arguments << "\n"
                                                            << outcome.out;
  }
  Folder folder;
};

const std::string program = SG_BINARY_DIR "/bin/gpt2 ";

// The exit code of a shell's command.
int shell(const std::string& command) {
  const int status = std::system(("bash -c '" + command + "' 2>/dev/null").c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

bool eventually(const std::function<bool()>& holds) {
  for (int i = 0; i < 3000 && !holds(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return holds();
}

TEST_F(RunFolder, OfAnotherRunIsNotTrainedOver) {
  ASSERT_EQ(gpt2(train(4, out() + "--save-every 2")).code, 0);
  const std::string metrics = read(folder / "w/metrics.jsonl"), latest = read(folder / "w/latest");
  expect_refused(
      train(3, out()), 2, "holds a run of 4 steps: --resume, another --out, or --overwrite");
  expect_refused(train(3, out() + "--overwrite --resume"), 2, "--overwrite");
  expect_refused(train(3, "--overwrite"), 2, "--overwrite");
  EXPECT_EQ(read(folder / "w/metrics.jsonl"), metrics);
  EXPECT_EQ(read(folder / "w/latest"), latest);
  EXPECT_TRUE(fs::exists(folder / "w/step-000002"));

  write(folder / "w/notes", "precious");
  ASSERT_EQ(gpt2(train(3, out() + "--overwrite")).code, 0);
  EXPECT_EQ(read(folder / "w/latest"), "step-000003\n");
  EXPECT_FALSE(fs::exists(folder / "w/step-000004"));
  EXPECT_EQ(read(folder / "w/notes"), "precious");
  EXPECT_FALSE(fs::exists(folder / "w/run.lock"));
}

TEST_F(RunFolder, IsRefusedWhileAProcessWritesIntoIt) {
  const pid_t child = fork();
  if (child == 0) {
    execl("/bin/bash",
          "bash",
          "-c",
          ("exec " + program + train(1000000, out()) + ">/dev/null").c_str(),
          nullptr);
    _exit(127);
  }
  ASSERT_TRUE(eventually([&] { return fs::exists(folder / "w/metrics.jsonl"); }));
  const auto begin = std::chrono::steady_clock::now();
  for (const char* more : {"", "--resume", "--overwrite", "--ranks 2 --engine ddp"}) {
    expect_refused(
        train(2, out() + more), 2, "in use by process " + std::to_string(child) + " on host ");
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_TRUE(fs::exists(folder / "w/run.lock"));
  EXPECT_EQ(gpt2(train(2, out() + "--overwrite")).code, 0) << "a dead process's lock holds";
}

TEST_F(RunFolder, OfAnotherHostIsNotTakenOver) {
  fs::create_directory(folder / "w");
  write(folder / "w/run.lock", "another-host-of-this-name 123\n");
  expect_refused(train(2, out()), 2, "process 123 on host another-host-of-this-name");
}

TEST_F(RunFolder, MayBeALinkAndNoFile) {
  fs::create_directory(folder / "real");
  fs::create_symlink(folder / "real", folder / "w");
  ASSERT_EQ(gpt2(train(2, out())).code, 0);
  EXPECT_TRUE(fs::is_symlink(folder / "w"));
  EXPECT_EQ(read(folder / "real/latest"), "step-000002\n");
  EXPECT_EQ(gpt2(train(2, out() + "--resume")).code, 0);
  EXPECT_EQ(gpt2("generate --tokens 3 --from " + (folder / "w")).code, 0);
  EXPECT_EQ(gpt2("eval --data " + (folder / "text") + " --from " + (folder / "w")).code, 0);
  EXPECT_EQ(gpt2("export --from " + (folder / "w") + " --to " + (folder / "m")).code, 0);
  write(folder / "file", "precious");
  expect_refused(train(2, out("file")), 2, "a folder is needed");
  EXPECT_EQ(read(folder / "file"), "precious");
}

TEST_F(RunFolder, ResultsAreWrittenWhereTheirNamesLead) {
  write(folder / "target", "old");
  fs::create_symlink("target", folder / "link");
  fs::create_symlink("new", folder / "dangling");
  fs::create_symlink("/dev/null", folder / "nowhere");
  ASSERT_EQ(
      gpt2(train(2, "--receipt " + (folder / "link") + " --trace " + (folder / "dangling"))).code,
      0);
  EXPECT_TRUE(fs::is_symlink(folder / "link") && fs::is_symlink(folder / "dangling"));
  EXPECT_TRUE(read_json(folder / "target").is_object());
  EXPECT_TRUE(read_json(folder / "new").is_object());
  for (const std::string& name : {std::string("/dev/null"), folder / "nowhere"}) {
    EXPECT_EQ(gpt2(train(2, "--receipt " + name)).code, 0) << name;
    EXPECT_TRUE(fs::is_character_file("/dev/null")) << name;
  }
  EXPECT_TRUE(fs::is_symlink(folder / "nowhere"));
  EXPECT_EQ(gpt2(train(2, "--receipt /dev/full")).code, 4);
  EXPECT_TRUE(fs::is_character_file("/dev/full"));
  ASSERT_EQ(mkfifo((folder / "fifo").c_str(), 0600), 0);
  EXPECT_EQ(gpt2(train(2, "--receipt " + (folder / "fifo"))).code, 4) << "nobody reads it";
  EXPECT_EQ(shell("cat " + (folder / "fifo") + " > " + (folder / "read") + " & " + program +
                  train(2, "--receipt " + (folder / "fifo")) + " > /dev/null && wait"),
            0);
  EXPECT_TRUE(fs::is_fifo(folder / "fifo"));
  EXPECT_TRUE(read_json(folder / "read").is_object());
}

TEST_F(RunFolder, ResultsThatCantBeWrittenAreRefusedBeforeTheFirstStep) {
  fs::create_directory(folder / "folder");
  fs::create_symlink("loop", folder / "loop");
  for (const char* option : {"--receipt ", "--trace "}) {
    expect_refused(train(2, option + (folder / "missing/r")), 4, "missing/r");
    expect_refused(train(2, option + (folder / "folder")), 4, "a folder");
    expect_refused(train(2, option + (folder / "loop")), 4, "links");
    expect_refused(train(2, option + (folder / "text/r")), 4, "text/r");
    expect_refused(train(2, out() + option + (folder / "w/latest")), 2, "keeps its own");
    expect_refused(train(2, out() + option + (folder / "w/metrics.jsonl")), 2, "keeps its own");
  }
  expect_refused(
      "bench --size nano --layers 1 --steps 1 --receipt " + (folder / "missing/r"), 4, "missing/r");
  expect_refused("compare --size nano --layers 1 --steps 1 --receipt " + (folder / "missing/r"),
                 4,
                 "missing/r");
}

TEST_F(RunFolder, IsNoPlaceForAnExport) {
  ASSERT_EQ(gpt2(train(2, out())).code, 0);
  const std::string shard = folder / "w/step-000002/shard-00000-of-00001.safetensors",
                    before = read(shard);
  fs::create_symlink(shard, folder / "link");
  fs::create_directory(folder / "w/exports");
  const std::string from = "export --from " + (folder / "w") + " --to ";
  for (const std::string& to : {shard,
                                folder / "w/latest",
                                folder / "w/model",
                                folder / "w/exports/model",
                                folder / "link",
                                folder / "w/step-000002/../model"})
    expect_refused(from + to, 2, "in the folder of a run");
  EXPECT_EQ(read(shard), before);
  EXPECT_EQ(read(folder / "w/latest"), "step-000002\n");
  EXPECT_EQ(gpt2(from + (folder / "model")).code, 0);
}

TEST_F(RunFolder, AFullStdoutIsAnError) {
  ASSERT_EQ(gpt2(train(2, out())).code, 0);
  const std::string from = " --from " + (folder / "w"), data = " --data " + (folder / "text");
  for (const std::string& arguments :
       {train(2, ""),
        "eval" + data + from,
        "generate --tokens 3" + from,
        "export --to " + (folder / "m") + from,
        std::string("plan --size nano"),
        std::string("compare --explain ring"),
        std::string("--help"),
        std::string("--version"),
        "compare --engines ddp --size nano --layers 1 --heads 2 --width 16 --context 16 "
        "--micro-batch 2 --steps 2" +
            data,
        std::string("bench --size nano --layers 1 --heads 2 --width 16 --context 16 --steps 2")})
    EXPECT_EQ(shell(program + arguments + " > /dev/full"), 4) << arguments;
}

TEST_F(RunFolder, TrainingGoesOnWhenNobodyReadsAlong) {
  EXPECT_EQ(shell(program + train(40, out()) + " | head -3 > /dev/null; exit ${PIPESTATUS[0]}"), 0);
  EXPECT_EQ(read(folder / "w/latest"), "step-000040\n");
}

TEST_F(RunFolder, IsSavedByTimeAndBeforeTheLastValidation) {
  const auto saves = [&](const std::string& more) {
    const Outcome outcome =
        gpt2(train(6, out() + more + " --overwrite --receipt " + (folder / "r")));
    EXPECT_EQ(outcome.code, 0) << outcome.both();
    size_t count = 0;
    for (size_t at = 0; (at = outcome.out.find("saved;", at)) != std::string::npos; ++at)
      ++count;
    const size_t last_save = outcome.out.rfind("saved;"),
                 validation = outcome.out.rfind("validation loss");
    EXPECT_LT(last_save, validation) << outcome.out;
    return count;
  };
  EXPECT_EQ(saves(""), 1u);
  const auto often = read_json(folder / "r");
  EXPECT_EQ(saves("--save-minutes 1e-9"), 6u);
  EXPECT_EQ(saves("--save-minutes 1e-9 --ranks 2 --engine zero2 --async-save"), 6u);
  EXPECT_EQ(saves("--save-minutes 0"), 1u);
  const auto never = read_json(folder / "r");
  for (const char* key : {"loss_bits", "params_sha256", "validation"})
    EXPECT_EQ(often.at(key), never.at(key)) << key;
  EXPECT_EQ(gpt2(train(6, out() + "--resume --receipt " + (folder / "again"))).code, 0);
  EXPECT_EQ(read_json(folder / "again").at("validation"), never.at("validation"));
}

TEST_F(RunFolder, SplitsThatAreTooShortAreRefusedBeforeTheFirstStep) {
  const std::string data = " --data " + (folder / "short");
  expect_refused("train" + std::string(tiny) + "--steps 2 " + out() + data + " --val-fraction 0.05",
                 3,
                 "to validate on");
  expect_refused("train" + std::string(tiny) + "--steps 2 " + out() + data + " --val-fraction 0.9",
                 3,
                 "to train on");
}

}  // namespace
}  // namespace sg::cli

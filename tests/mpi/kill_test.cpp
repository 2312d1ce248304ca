// Runs that are killed at random points, each time resumed on another engine, partition and number
// of ranks, of threads or of processes, saved at once or beside training: the undisturbed run's
// bits, no process left, no file left, nothing lost beyond the last save. SG_LONG=1 makes 100
// kills.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "tests/core/temporary_folder.h"
#include "tests/mpi/job.h"

namespace sg::testing {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr int64_t steps = 60;

class Kills : public ::testing::Test {
 protected:
  void SetUp() override {
    std::ofstream file(folder_ / "text");
    for (int i = 0; i < 400; ++i)
      file << i % 17 << " bottles hang on the wall, " << i % 5 << " fall. ";
    std::cout << "seed " << seed_ << "\n";
  }

  static std::string train(const std::string& folder, const std::string& more) {
    return std::string(SG_GPT2) +
           " train --size nano --layers 2 --heads 2 --width 16 --context 16 --global-batch 8 "
           "--micro-batch 2"
           " --tokenizer chars --threads 1 --warmup 2 --val-fraction 0 --bucket-bytes 8KiB "
           "--elastic-determinism"
           " --dropout 0.1 --comm-timeout 60 --data " +
           folder + "/text --steps " + std::to_string(steps) + " " + more;
  }

  template <class T>
  T pick(std::initializer_list<T> values) {
    return values.begin()[random_() % values.size()];
  }

  // A run's ranks and engine, any that go together.
  std::string any_run(const std::string& more) {
    const int ranks = pick({1, 2, 4});
    const bool processes = !std::string(SG_MPIEXEC).empty() && random_() % 2 == 0;
    const std::string engine = processes ? pick({"ddp", "zero1", "zero2", "zero3"})
                                         : pick({"dp", "ddp", "zero1", "zero2", "zero3"});
    const std::string partition =
        engine.starts_with("zero") ? std::string(" --partition ") + pick({"bucket", "contiguous"})
                                   : "";
    const std::string options = "--engine " + engine + partition +
                                (random_() % 2 ? " --async-save" : "") +
                                (processes ? "" : " --ranks " + std::to_string(ranks)) + " " + more;
    const std::string launcher =
        processes ? std::string(SG_MPIEXEC) + " -n " + std::to_string(ranks) + " " : "";
    return launcher + train(folder_.path(), options);
  }

  Json finish(const std::string& command) {
    Job job(command + " --receipt " + (folder_ / "receipt"));
    const JobResult result = job.wait(300);
    EXPECT_EQ(result.status, 0) << command << "\n" << result.output;
    std::ifstream file(folder_ / "receipt");
    return Json::parse(file, nullptr, false);
  }

  // One kill, of the launcher or of a process of the job. False: the run had ended before.
  bool kill_one(const std::string& command, const std::string& out, double after) {
    Job job(command);
    std::this_thread::sleep_for(std::chrono::duration<double>(after));
    if (command.starts_with(SG_GPT2) || random_() % 2 == 0) {
      job.signal(SIGKILL);
    } else {
      const std::vector<pid_t> processes = job.left(0);
      if (!processes.empty())
        kill(processes[random_() % processes.size()], SIGKILL);
    }
    const JobResult result = job.wait(120);
    EXPECT_TRUE(job.left(30).empty()) << "orphan processes of " << command << "\n" << result.output;
    const int64_t told = last_saved(result.output), kept = newest(out);
    EXPECT_GE(kept, told) << "lost a save that was told: " << command << "\n" << result.output;
    return result.status != 0;
  }

  // The last step that a run said it had saved.
  static int64_t last_saved(const std::string& output) {
    const size_t at = output.rfind("  saved;");
    if (at == std::string::npos)
      return 0;
    const size_t step = output.rfind("step ", at);
    return std::atoll(output.c_str() + step + 5);
  }
  static int64_t newest(const std::string& out) {
    const std::string tag = test::contents_of(out + "/latest");
    return tag.empty() ? 0 : std::atoll(tag.c_str() + tag.find('-') + 1);
  }
  static std::string resume(const std::string& out) {
    return " --save-every 2 --out " + out +
           (fs::exists(out + "/latest") ? " --resume" : " --overwrite");
  }

  const unsigned seed_ = std::getenv("SG_SEED")
                             ? static_cast<unsigned>(std::atoi(std::getenv("SG_SEED")))
                             : std::random_device{}();
  std::mt19937 random_{seed_};
  test::TemporaryFolder folder_;
};

TEST_F(Kills, AtRandomPointsLoseNothingAndChangeNoBit) {
  const char* const longer = std::getenv("SG_LONG");
  const int wanted = longer && std::string(longer) == "1" ? 100 : 4;
  const auto begin = std::chrono::steady_clock::now();
  const Json whole = finish(train(folder_.path(), "--engine ddp"));
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  ASSERT_TRUE(whole.is_object());
  int kills = 0, runs = 0;
  while (kills < wanted && !HasFailure()) {
    const std::string out = folder_ / ("run-" + std::to_string(runs++));
    for (int i = 0; i < 3 && kills < wanted && newest(out) < steps; ++i) {
      const std::string command = any_run(resume(out));
      const double start = command.starts_with(SG_GPT2) ? 0 : 0.5;  // of mpirun
      const double after =
          std::uniform_real_distribution<>(0.05, 0.95)(random_) * (seconds + start);
      kills += kill_one(command, out, after);
    }
    const Json last = finish(any_run(resume(out)));
    for (const char* key : {"params_sha256", "loss_bits"})
      EXPECT_EQ(last.value(key, Json()), whole.at(key)) << key;
    std::vector<std::string> strange;
    for (const auto& entry : fs::directory_iterator(out)) {
      const std::string name = entry.path().filename().string();
      const bool ours = name == "latest" || name == "metrics.jsonl" ||
                        (name.starts_with("step-") && name.find(".tmp-") == std::string::npos);
      if (!ours)
        strange.push_back(name);
    }
    EXPECT_TRUE(strange.empty()) << strange.front() << " is left";
  }
  std::cout << kills << " kills of " << runs << " runs\n";
}

}  // namespace
}  // namespace sg::testing

// Training by the executable on ranks that are processes: the bits of thread ranks, stopping, and
// faults that name their cause and leave no process behind. SG_MPIEXEC is the launcher with its
// flags; empty in a build without MPI.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/core/temporary_folder.h"
#include "tests/mpi/job.h"

namespace sg::testing {
namespace {

using Json = nlohmann::json;

constexpr int64_t endless = 200'000;  // steps

class MpiTraining : public ::testing::Test {
 protected:
  void SetUp() override {
    if (std::string(SG_MPIEXEC).empty())
      GTEST_SKIP() << "this build has no MPI";
    write_text("text", 17);
  }

  std::string path(const std::string& name) const { return folder_ / name; }
  void write_text(const std::string& name, int period) const {
    std::ofstream file(path(name));
    for (int i = 0; i < 400; ++i)
      file << i % period << " bottles hang on the wall, " << i % 5 << " fall. ";
  }

  // A run of a small model.
  std::string train(const std::string& more,
                    int64_t steps = 12,
                    const std::string& data = "text") const {
    return std::string(SG_GPT2) +
           " train --size nano --layers 2 --heads 2 --width 16 --context 16 --micro-batch 2 "
           "--tokenizer chars"
           " --threads 1 --warmup 2 --val-fraction 0 --bucket-bytes 8KiB --steps " +
           std::to_string(steps) + " --data " + path(data) + " " + more;
  }
  static std::string mpirun(const std::string& program) {
    return std::string(SG_MPIEXEC) + " -n 2 " + program;
  }
  // A rank each of two programs.
  static std::string mpirun(const std::string& first, const std::string& second) {
    return std::string(SG_MPIEXEC) + " -n 1 " + first + " : -n 1 " + second;
  }

  Json receipt(const std::string& name) const {
    std::ifstream file(path(name));
    return Json::parse(file, nullptr, false);
  }
  // The receipt of a run that must succeed.
  Json succeed(const std::string& command, const std::string& name) const {
    Job job(command + " --receipt " + path(name));
    const JobResult result = job.wait();
    EXPECT_EQ(result.status, 0) << command << "\n" << result.output;
    EXPECT_TRUE(job.left(5).empty());
    return receipt(name);
  }
  // A run that must fail, and all of it with it.
  static JobResult fail(Job& job, double seconds = 60) {
    const JobResult result = job.wait(seconds);
    EXPECT_NE(result.status, 0) << result.output;
    EXPECT_NE(result.status, -SIGKILL) << "hangs: " << result.output;
    EXPECT_TRUE(job.left(10).empty()) << "orphan processes: " << result.output;
    return result;
  }
  static JobResult fail(const std::string& command) {
    Job job(command);
    return fail(job);
  }

  static void expect_same_bits(const Json& a, const Json& b) {
    ASSERT_TRUE(a.is_object() && b.is_object());
    EXPECT_EQ(a.at("loss_bits"), b.at("loss_bits"));
    EXPECT_EQ(a.at("params_sha256"), b.at("params_sha256"));
  }

 private:
  test::TemporaryFolder folder_;
};

TEST_F(MpiTraining, HasTheBitsOfThreadRanks) {
  for (const char* options : {"--engine ddp --global-batch 8 --clip 1",
                              "--engine zero1 --precision bf16",
                              "--engine zero2 --precision fp16",
                              "--engine zero3 --global-batch 8 --tied off"}) {
    SCOPED_TRACE(options);
    expect_same_bits(succeed(train(options + std::string(" --ranks 2")), "threads"),
                     succeed(mpirun(train(options)), "processes"));
  }
}

// Memory for communication is part of what the dry run foresees.
TEST_F(MpiTraining, AutoTakesWhatJustFits) {
  const Json zero1 = succeed(mpirun(train("--engine zero1")), "zero1");
  uint64_t needed = 0;
  for (const auto& [rank, memory] : zero1.at("memory").items())
    for (const char* peak : {"total", "setup"})
      needed = std::max(needed, memory.at(peak).get<uint64_t>());
  const auto automatic = [&](uint64_t memory) {
    return mpirun(train("--engine auto --device-memory " + std::to_string(memory)));
  };
  const Json fits = succeed(automatic(needed), "auto");
  EXPECT_EQ(fits.at("engine"), "zero1");
  expect_same_bits(fits, zero1);
  const JobResult short_of_a_byte =
      fail(automatic(needed - 1));  // a model so small gains nothing from zero2
  EXPECT_NE(short_of_a_byte.output.find("auto: zero1 needs "), std::string::npos)
      << short_of_a_byte.output;
}

TEST_F(MpiTraining, HasTheBitsOfThreadRanksOnTwoHosts) {
  Job job(std::string(SG_TWO_HOSTS) + " " + train("--engine ddp --receipt " + path("hosts")));
  const JobResult result = job.wait();
  if (result.status == 77)
    GTEST_SKIP() << result.output;
  ASSERT_EQ(result.status, 0) << result.output;
  expect_same_bits(succeed(train("--engine ddp --ranks 2"), "threads"), receipt("hosts"));
}

TEST_F(MpiTraining, ResumesAfterAKillWithTheBitsOfTheUninterruptedRun) {
  for (const auto& [victim, options] :
       {std::pair(0, "--engine ddp"),
        std::pair(1, "--engine zero2 --precision fp16"),
        std::pair(1, "--engine zero3 --precision bf16 --async-save")}) {
    SCOPED_TRACE(options);
    const Json whole = succeed(train(options + std::string(" --ranks 2")), "whole");
    const std::string out = path("killed-" + std::string(options).substr(9, 5));
    const std::string command =
        mpirun(train(options + std::string(" --save-every 2 --out ") + out));
    {
      Job job(command);
      const pid_t process = job.rank(victim);
      ASSERT_TRUE(
          job.sees(out + "/latest"));  // a checkpoint's folder may be pruned before it is seen
      kill(process, SIGKILL);
      const JobResult killed = job.wait();
      EXPECT_TRUE(job.left(10).empty()) << "orphan processes: " << killed.output;
      if (killed.status != 0) {  // else it had ended before
        EXPECT_TRUE(killed.says("rank " + std::to_string(victim)) && killed.says("signal 9"))
            << killed.output;
      }
    }
    expect_same_bits(whole, succeed(command + " --resume", "resumed"));
  }
}

// mpirun gives ranks a terminal of its own, 80 columns wide, whatever its own output is.
TEST_F(MpiTraining, ShowsPlainWholeLines) {
  Job job(mpirun(train("--engine ddp --lr 1e-3", 4)));
  const JobResult result = job.wait();
  EXPECT_EQ(result.status, 0) << result.output;
  EXPECT_EQ(result.output.find('\033'), std::string::npos) << result.output;
  const size_t begin = result.output.find("step 4/4");
  ASSERT_NE(begin, std::string::npos) << result.output;
  const std::string line = result.output.substr(begin, result.output.find('\n', begin) - begin);
  EXPECT_NE(line.find(" left"), std::string::npos) << "cut short: " << line;
}

TEST_F(MpiTraining, SavesAndEndsOnSigusr1) {
  const std::string out = path("run");
  const std::string command = mpirun(train("--engine zero1 --save-every 2 --out " + out, endless));
  Job job(command);
  ASSERT_TRUE(job.sees(out + "/latest"));
  job.signal(SIGUSR1);
  const JobResult stopped = job.wait();
  EXPECT_EQ(stopped.status, 0) << stopped.output;
  EXPECT_TRUE(stopped.says("as asked, saved")) << stopped.output;
  EXPECT_TRUE(job.left(10).empty());
}

// mpirun tells its ranks, and gives them a second; here more, so that a busy machine doesn't fail
// it.
TEST_F(MpiTraining, SavesWhenTheLauncherIsToldToEnd) {
  for (const int signal : {SIGINT, SIGTERM}) {
    const std::string out = path("run" + std::to_string(signal));
    Job job("env OMPI_MCA_odls_base_sigkill_timeout=5 " +
            mpirun(train("--engine zero2 --out " + out, endless)));
    ASSERT_TRUE(job.sees(out + "/metrics.jsonl"));
    job.signal(signal);
    const JobResult stopped = job.wait();
    EXPECT_TRUE(stopped.says("as asked, saved")) << stopped.output;
    EXPECT_TRUE(job.left(10).empty());
    EXPECT_FALSE(test::contents_of(out + "/latest").empty()) << stopped.output;
  }
}

TEST_F(MpiTraining, RanksThatDifferAreRefusedBeforeTheFirstStep) {
  const auto expect_refusal = [&](const std::string& first,
                                  const std::string& second,
                                  const std::string& what,
                                  const std::string& data = "text") {
    const JobResult result = fail(mpirun(train(first), train(second, 12, data)));
    EXPECT_TRUE(result.says("ranks disagree on " + what)) << result.output;
    EXPECT_TRUE(result.says("rank 0 has") && result.says("rank 1 has")) << result.output;
    EXPECT_FALSE(result.says("loss")) << result.output;
  };
  write_text("other", 16);
  expect_refusal("--engine ddp --lr 1e-3", "--engine ddp --lr 2e-3", "lr");
  expect_refusal("--engine ddp", "--engine zero1", "engine");
  expect_refusal("--engine ddp --seed 1", "--engine ddp --seed 2", "seed");
  expect_refusal("--engine zero3 --overlap on", "--engine zero3 --overlap off", "overlap");
  expect_refusal("--engine zero3", "--engine zero3 --prefetch-elements 10", "prefetch");
  expect_refusal("--engine ddp --receipt " + path("receipt"), "--engine ddp", "receipt");
  expect_refusal("--engine ddp", "--engine ddp", "data", "other");
  expect_refusal(
      "--engine ddp --out " + path("run"), "--engine ddp --resume --out " + path("run"), "resume");
}

TEST_F(MpiTraining, AStoppedRankIsWarnedOfThenNamed) {
  const std::string out = path("run");
  Job job(mpirun(train("--engine ddp --comm-timeout 3 --save-every 2 --out " + out, endless)));
  const pid_t process = job.rank(1);
  ASSERT_TRUE(job.sees(out + "/latest"));
  kill(process, SIGSTOP);
  const JobResult result = fail(job);
  EXPECT_LT(result.seconds, 3 + 30);
  EXPECT_TRUE(result.says("has waited")) << result.output;
  EXPECT_TRUE(result.says("no answer from rank 1 within 3 s")) << result.output;
  EXPECT_TRUE(result.says("last calls, latest first")) << result.output;
}

TEST_F(MpiTraining, DpIsRefused) {
  const JobResult result = fail(mpirun(train("--engine dp")));
  EXPECT_TRUE(result.says("engine dp")) << result.output;
}

TEST_F(MpiTraining, TheLaunchersWorldDecides) {
  const JobResult result = fail(mpirun(train("--engine ddp --ranks 3")));
  EXPECT_TRUE(result.says("ranks: 3 are asked for, the launcher started 2")) << result.output;
}

TEST_F(MpiTraining, CompareLeavesDpOut) {
  Job job(mpirun(std::string(SG_GPT2) +
                 " compare --size nano --layers 1 --heads 2 --width 16 --context 16 --micro-batch "
                 "2 --tokenizer chars"
                 " --threads 1 --steps 3 --data " +
                 path("text") + " --receipt " + path("comparison")));
  const JobResult result = job.wait();
  ASSERT_EQ(result.status, 0) << result.output;
  const Json engines = receipt("comparison").at("engines");
  EXPECT_FALSE(engines.contains("dp"));
  EXPECT_EQ(engines.size(), 4u);
  for (const auto& [name, engine] : engines.items())
    EXPECT_TRUE(engine.at("bits_equal").get<bool>()) << name;
}

}  // namespace
}  // namespace sg::testing

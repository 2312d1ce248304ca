// Faults while an engine saves, at once or beside training: a process that ends at any point of the
// protocol, a rank whose disk fails. The newest complete checkpoint stays, and it is one step's.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <sstream>

#include "core/io/atomic_file.h"
#include "dist/checkpoint/checkpoint.h"
#include "tests/core/temporary_folder.h"
#include "tests/dist/tiny_model.h"
#include "tests/errors.h"

namespace sg::dist::testing {
namespace {

using test::TemporaryFolder;

Training training(EngineKind engine, DType precision) {
  Training r;
  r.options.engine = engine;
  r.options.precision = precision;
  r.options.first_bucket_bytes = r.options.bucket_bytes = 6000;
  r.ranks = 2, r.steps = 4;
  return r;
}

void save(Engine& engine, const std::string& folder, bool beside) {
  if (!beside)
    return engine.save(folder);
  AsyncSaver saver(engine.state(), ranks_of(engine.comm()));
  saver.start(folder, checkpoint_of(engine));
  saver.wait();
}

// The process ends at point n: before a call, of those that write the same file only the first.
void end_at(int n) {
  set_file_fault(
      [n, calls = 0, files = std::set<std::string>(), mutex = std::make_shared<std::mutex>()](
          std::string_view call, const std::string& path) mutable {
        const std::lock_guard lock(*mutex);
        const bool counts = call != "write" || files.insert(path).second;
        if (counts && calls++ == n)
          _exit(99);
        return 0;
      });
}

// What a process does: with two ranks it saves steps 2 and 4, but ends at point n of the second
// save.
struct Task {
  EngineKind engine;
  DType precision;
  bool beside;
  std::string folder;
  int n;
};

constexpr const char* task_variable = "SHARDGRAD_TEST_TASK";

// The body of such a process, which runs this test alone; a mere fork would lack the threads of
// devices in use.
TEST(EngineCheckpointProcess, DISABLED_SavesTwice) {
  std::istringstream text(std::getenv(task_variable));
  int engine, precision, n;
  bool beside;
  std::string folder;
  text >> engine >> precision >> beside >> n >> folder;
  train(training(static_cast<EngineKind>(engine), static_cast<DType>(precision)),
        [&](Engine& e, int step) {
          if (step % 2 == 0)
            return;
          save(e, folder, beside);
          if (step == 1 && e.comm().rank() == 0)
            end_at(n);
        });
}

int exit_code_of(const Task& task) {
  const pid_t child = fork();
  if (child == 0) {
    const std::string text = fmt::format("{} {} {:d} {} {}",
                                         static_cast<int>(task.engine),
                                         static_cast<int>(task.precision),
                                         task.beside,
                                         task.n,
                                         task.folder);
    setenv(task_variable, text.c_str(), 1);
    execl("/proc/self/exe",
          "test",
          "--gtest_filter=EngineCheckpointProcess.*",
          "--gtest_also_run_disabled_tests",
          "--gtest_brief=1",
          nullptr);
    _exit(127);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

std::map<std::string, std::string> files_of(const std::string& checkpoint) {
  std::map<std::string, std::string> files;
  for (const auto& file : std::filesystem::directory_iterator(checkpoint))
    files[file.path().filename()] = test::contents_of(file.path());
  return files;
}

class EngineCheckpointFaults : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Beside, EngineCheckpointFaults, ::testing::Bool());

TEST_P(EngineCheckpointFaults, AProcessThatEndsAnywhereInASaveLeavesTheNewestCompleteOne) {
  const bool beside = GetParam();
  for (Task task : {Task{EngineKind::zero2, DType::f16, beside, {}, -1},
                    {EngineKind::zero3, DType::f32, beside, {}, -1}}) {
    const TemporaryFolder whole;
    task.folder = whole.path();
    ASSERT_EQ(exit_code_of(task), 0);
    int n = 0;
    bool was_new = false;
    for (int code = 99; code == 99; ++n) {
      SCOPED_TRACE(::testing::Message() << name_of(task.engine) << ", point " << n);
      const TemporaryFolder folder;
      task.folder = folder.path(), task.n = n;
      code = exit_code_of(task);
      ASSERT_TRUE(code == 99 || code == 0) << code;
      const CheckpointReader newest(folder.path());
      EXPECT_EQ(files_of(newest.path()), files_of(whole / newest.tag()))
          << "not all of it is of one step";
      EXPECT_FALSE(was_new && newest.step() == 2) << "a later end lost the new checkpoint";
      was_new = newest.step() == 4;
    }
    EXPECT_TRUE(was_new);
    EXPECT_GT(n, 20) << "the ends must have met every step of the protocol";
  }
}

struct DiskFault {
  const char* call;
  const char* path;  // that it ends with
  int error;
};

TEST_P(EngineCheckpointFaults, ADiskThatFailsOnOneRankFailsTheSaveOnAllAndTheOldOneStays) {
  const DiskFault faults[] = {{"open", "shard-00001-of-00002.safetensors", EACCES},
                              {"write", "shard-00001-of-00002.safetensors", ENOSPC},
                              {"write", "shard-00000-of-00002.safetensors", EIO},
                              {"fsync", "shard-00001-of-00002.safetensors", EIO},
                              {"close", "shard-00001-of-00002.safetensors", EIO},
                              {"write", "manifest.json", ENOSPC},
                              {"fsync", "manifest.json", EIO},
                              {"rename", "step-000002", EIO}};
  for (const EngineKind engine : {EngineKind::ddp, EngineKind::zero2, EngineKind::zero3})
    for (const DiskFault& fault : faults) {
      SCOPED_TRACE(::testing::Message()
                   << name_of(engine) << ": " << fault.call << " of " << fault.path);
      const TemporaryFolder folder;
      std::atomic<int> failed{0}, refused{0};
      train(training(engine, DType::bf16), [&](Engine& e, int step) {
        if (step != 1)
          return save(e, folder.path(), GetParam());
        e.comm().barrier({"fault.on", Phase::check}).wait();
        if (e.comm().rank() == 0)
          set_file_fault([&](std::string_view call, const std::string& path) {
            const bool meant = call == fault.call && path.ends_with(fault.path);
            failed += meant;
            return meant ? fault.error : 0;
          });
        e.comm().barrier({"fault.set", Phase::check}).wait();
        const std::string error =
            test::error_of(ErrorKind::io, [&] { save(e, folder.path(), GetParam()); });
        refused += error.find(std::string(fault.call) + " failed: ") != std::string::npos;
        e.comm().barrier({"fault.met", Phase::check}).wait();
        if (e.comm().rank() != 0)
          return;
        set_file_fault({});
        EXPECT_EQ(folder.names(), (std::vector<std::string>{"latest", "step-000001"}));
        EXPECT_EQ(CheckpointReader(folder.path()).step(), 1u);
      });
      EXPECT_EQ(failed, 1) << "a failed call is never tried again";
      EXPECT_EQ(refused, 2) << "all ranks know";
      EXPECT_EQ(CheckpointReader(folder.path()).step(), 4u) << "training and saving went on";
    }
}

}  // namespace
}  // namespace sg::dist::testing

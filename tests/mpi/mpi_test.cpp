// Ranks that are real processes under mpirun: the same bits as thread ranks, and faults that name
// their cause and leave nothing behind. SG_MPIEXEC is the launcher with its flags; empty in a build
// without MPI.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <thread>

#include "dist/launch.h"
#include "tests/core/temporary_folder.h"
#include "tests/dist/comm_cases.h"

namespace sg::dist {
namespace {

namespace fs = std::filesystem;

struct Result {
  int status;
  std::string
      printed;  // to stdout, by the ranks; libraries and the launcher have stderr to themselves
  std::string output;  // both, for people
  bool says(const std::string& text) const { return output.find(text) != std::string::npos; }
};

class Mpi : public testing::Test {
 protected:
  void SetUp() override {
    if (std::string(SG_MPIEXEC).empty())
      GTEST_SKIP() << "this build has no MPI";
    shared_memory_ = files_in("/dev/shm");
  }

  // A job of `ranks` processes. It must end by itself; what it leaves behind is a failure.
  Result mpirun(int ranks, const std::string& arguments) {
    return job(fmt::format("{} -n {} {} {}", SG_MPIEXEC, ranks, SG_MPI_RANKS, arguments));
  }

  // Two ranks on hosts of their own: network namespaces joined by a link with delay.
  Result on_two_hosts(const std::string& arguments) {
    return job(fmt::format("{} {} {}", SG_TWO_HOSTS, SG_MPI_RANKS, arguments));
  }

  Result job(const std::string& program) {
    const std::string errors = folder_ / "errors";
    const std::string command = fmt::format("timeout 60 {} 2>{} </dev/null", program, errors);
    Result result{0, {}, {}};
    FILE* pipe = popen(command.c_str(), "r");
    if (!pipe)
      return {-1, {}, "popen failed"};
    char buffer[4096];
    for (size_t n; (n = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;)
      result.printed.append(buffer, n);
    const int status = pclose(pipe);
    result.output = result.printed + test::contents_of(errors);
    result.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    EXPECT_NE(result.status, 124) << "hangs: " << result.output;
    expect_nothing_left();
    return result;
  }

  Result failed(int ranks, const std::string& arguments) {
    const Result result = mpirun(ranks, arguments);
    EXPECT_NE(result.status, 0) << result.output;
    EXPECT_FALSE(result.says("not reached")) << result.output;
    return result;
  }

 private:
  static std::set<std::string> files_in(const fs::path& folder) {
    std::set<std::string> names;
    if (!fs::exists(folder))
      return names;
    for (const auto& entry : fs::directory_iterator(folder))
      names.insert(entry.path().filename());
    return names;
  }

  static bool rank_is_alive() {
    for (const std::string& process : files_in("/proc")) {
      std::ifstream file("/proc/" + process + "/cmdline");
      std::string program;
      std::getline(file, program, '\0');
      if (program == SG_MPI_RANKS)
        return true;
    }
    return false;
  }

  void expect_nothing_left() {
    for (int i = 0; i < 50 && rank_is_alive(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    EXPECT_FALSE(rank_is_alive()) << "an orphan process";
    for (const std::string& name : files_in("/dev/shm")) {
      const bool ours =
          name.find("vader") != std::string::npos || name.find("osc") != std::string::npos;
      EXPECT_TRUE(!ours || shared_memory_.contains(name))
          << "/dev/shm/" << name << " is left behind";
    }
  }

  std::set<std::string> shared_memory_;
  test::TemporaryFolder folder_;
};

// What the ranks program prints for `digests`, computed by thread ranks.
std::string digests_of_threads(int ranks) {
  std::vector<std::string> lines(static_cast<size_t>(ranks) * 3);
  run_threads(ranks, [&](Comm& comm) {
    const auto add = [&](size_t part, const std::vector<std::string>& results) {
      for (const std::string& line : results) {
        lines[part * static_cast<size_t>(ranks) + static_cast<size_t>(comm.rank())] +=
            fmt::format("{}: {}\n", comm.rank(), line);
      }
    };
    add(0, cases::reductions(comm, Algorithm::ordered));
    add(1, cases::reductions(comm, Algorithm::ring));
    add(2, cases::moves(comm));
  });
  std::string all;
  for (const std::string& line : lines)
    all += line;
  return all;
}

TEST_F(Mpi, GivesTheBitsOfThreads) {
  for (const int ranks : {2, 3}) {
    const Result result = mpirun(ranks, "digests");
    EXPECT_EQ(result.status, 0);
    EXPECT_EQ(result.printed, digests_of_threads(ranks)) << result.output;
  }
}

TEST_F(Mpi, EveryCallOfMpiIsMadeByTheThreadThatStartedIt) {
  for (const int ranks : {1, 2}) {
    const Result result =
        job(fmt::format("{} -n {} {} digests", SG_MPIEXEC, ranks, SG_MPI_RANKS_WATCHED));
    EXPECT_EQ(result.status, 0) << result.output;
    EXPECT_TRUE(result.says("calls of MPI on one thread")) << result.output;
    EXPECT_FALSE(result.says("on another thread")) << result.output;
  }
}

TEST_F(Mpi, TwoHostsGiveTheSameBits) {
  const Result result = on_two_hosts("digests");
  if (result.status == 77)
    GTEST_SKIP() << result.output;
  EXPECT_EQ(result.status, 0);
  std::istringstream lines(result.printed);
  std::string digests;
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("0: ", 0) == 0 || line.rfind("1: ", 0) == 0)
      digests += line + "\n";
    else
      std::puts(line.c_str());  // what the script or the launcher says
  }
  EXPECT_EQ(digests, digests_of_threads(2));
}

TEST_F(Mpi, ARankThatStopsOnAnotherHostIsNamed) {
  const Result result = on_two_hosts("stopped");
  if (result.status == 77)
    GTEST_SKIP() << result.output;
  EXPECT_NE(result.status, 0);
  EXPECT_TRUE(result.says("call #2: no answer from rank 1 within 2 s")) << result.output;
  EXPECT_TRUE(result.says("rank 1: on another host")) << result.output;
}

// Of a machine whose `ip` can't do one of the things the script needs; what it says is a chroot's.
TEST_F(Mpi, TwoHostsAreSkippedWithTheReasonWhereTheyCantBeMade) {
  if (getuid() != 0)
    GTEST_SKIP() << "the script asks for root first";
  const test::TemporaryFolder tools;
  const std::pair<const char*, const char*> cases[] = {
      {"netns add", "network namespaces can't be made here"},
      {"netns exec", "namespaces can't be entered here: mount --make-rslave / failed"},
      {"link add", "veth pairs can't be made here"},
  };
  for (const auto& [missing, reason] : cases) {
    test::put(
        tools / "ip",
        fmt::format("#!/bin/sh\ncase \"$*\" in *\"{}\"*) echo 'mount --make-rslave / failed' >&2; "
                    "exit 255;; esac\n",
                    missing));
    for (const char* tool : {"tc", "unshare"})
      test::put(tools / tool, "#!/bin/sh\n");
    for (const std::string& name : tools.names())
      fs::permissions(tools / name, fs::perms::owner_all);
    const Result result =
        job(fmt::format("env PATH={}:$PATH {} echo reached", tools.path(), SG_TWO_HOSTS));
    EXPECT_EQ(result.status, 77) << missing << ": " << result.output;
    EXPECT_EQ(result.printed, fmt::format("two_hosts: {}\n", reason))
        << missing << ": " << result.output;
  }
}

// What libraries print beside, as hwloc does where there is no /sys, is nobody's result.
TEST_F(Mpi, WarningsOfLibrariesAreNotAResult) {
  const Result result = job(
      fmt::format("sh -c 'echo a warning >&2; exec {} -n 1 {} split'", SG_MPIEXEC, SG_MPI_RANKS));
  EXPECT_EQ(result.printed, "0: 0 of 1: 0\n") << result.output;
  EXPECT_TRUE(result.says("a warning"));
}

TEST_F(Mpi, NativeSumsAreMpisOwn) {
  const Result result = mpirun(2, "native");
  EXPECT_EQ(result.printed,
            "0: f32 1.5 6\n1: f32 1.5 -1\n0: f64 1.5 6\n1: f64 1.5 -1\n0: f16 1.5 6\n1: f16 1.5 "
            "-1\n0: bf16 1.5 6\n1: "
            "bf16 1.5 -1\n");
}

TEST_F(Mpi, SplitsByColourOrderedByKey) {
  EXPECT_EQ(mpirun(3, "split").printed, "0: 1 of 2: 2\n1: 0 of 1: 1\n2: 0 of 2: 2\n");
}

TEST_F(Mpi, NonFiniteContributionsAreNamed) {
  EXPECT_EQ(mpirun(2, "nan").printed, "0: rank 1 offset 0\n1: rank 1 offset 500\n");
}

TEST_F(Mpi, TheErrorOfARankThatThrowsSurvives) {
  const Result result = failed(3, "throws");
  EXPECT_TRUE(result.says("rank 1: the data file is empty")) << result.output;
}

TEST_F(Mpi, AKilledRankEndsTheJobAndIsNamed) {
  for (const char* where : {"killed", "killed-in-forward", "killed-in-optimizer"}) {
    const Result result = failed(2, where);
    EXPECT_TRUE(result.says("rank 1")) << where << ": " << result.output;
    EXPECT_TRUE(result.says("signal 9")) << where << ": " << result.output;
  }
}

TEST_F(Mpi, AStoppedRankIsWarnedOfThenNamedWithEveryRanksLastCalls) {
  for (const char* mode : {"stopped", "slow"}) {
    const Result result = failed(3, mode);
    EXPECT_TRUE(result.says("all_reduce \"third\" of 8 f32 on rank 0, call #2: has waited"))
        << result.output;
    EXPECT_TRUE(result.says("call #2: no answer from rank 1 within 2 s")) << result.output;
    EXPECT_TRUE(result.says("rank 0: #2 all_reduce \"third\" of 8 f32, running for"))
        << result.output;
    EXPECT_TRUE(result.says("rank 1: #1 all_reduce \"second\" of 8 f32, done in")) << result.output;
    EXPECT_TRUE(result.says("rank 2: #2 all_reduce \"third\"")) << result.output;
  }
}

TEST_F(Mpi, ARankThatEndsEarlyIsNamed) {
  const Result result = failed(3, "leaves");
  EXPECT_TRUE(result.says("rank 1 has returned from its program")) << result.output;
  EXPECT_TRUE(result.says("makes call #1, barrier \"end\"")) << result.output;
}

TEST_F(Mpi, DifferentCallsAreNamed) {
  const Result differs = failed(2, "differs");
  EXPECT_TRUE(
      differs.says("the operation differs: rank 0 makes call #2, all_reduce \"third\" of 8 f32; "
                   "rank 1 makes call #2, "
                   "broadcast \"third\" of 8 f32"))
      << differs.output;
  const Result skips = failed(2, "skips");
  EXPECT_TRUE(
      skips.says("the name differs: rank 0 makes call #2, all_reduce \"third\" of 8 f32; rank 1 "
                 "makes call #2, "
                 "all_reduce \"fourth\" of 8 f32"))
      << skips.output;
  const Result disagrees = failed(2, "disagrees");
  EXPECT_TRUE(disagrees.says("start: ranks disagree on seed: rank 0 has \"0\", rank 1 has \"1\""))
      << disagrees.output;
}

TEST_F(Mpi, TheLaunchersWorldDecides) {
  const Result result = failed(2, "native 5");
  EXPECT_TRUE(result.says("ranks: 5 are asked for, the launcher started 2")) << result.output;
}

TEST(NoMpi, IsRefusedWithAMessage) {
  try {
    connect_mpi({});
    FAIL() << "connected without a launcher";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_NE(std::string(error.what()).find("mpirun or srun"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace sg::dist

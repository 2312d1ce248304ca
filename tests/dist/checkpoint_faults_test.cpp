// Faults of checkpoints: kills and failing calls at every point of a save, and every kind of damage
// to what was saved.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <atomic>
#include <cerrno>
#include <filesystem>

#include "core/io/atomic_file.h"
#include "core/ops.h"
#include "dist/checkpoint/checkpoint.h"
#include "tests/core/temporary_folder.h"
#include "tests/dist/checkpoint_ranks.h"

namespace sg::dist {
namespace {

namespace fs = std::filesystem;
using test::contents_of;
using test::on_threads;
using test::put;
using test::TemporaryFolder;

constexpr int64_t elements = 8;

// Two ranks hold half each of a parameter whose every element is the step's number.
void save(const std::string& folder, uint64_t step, const CheckpointRanks& ranks) {
  const int64_t begin = ranks.rank * elements / ranks.size,
                end = (ranks.rank + 1) * elements / ranks.size;
  const Tensor values =
      from_vector(std::vector<float>(static_cast<size_t>(end - begin), static_cast<float>(step)));
  save_checkpoint(folder,
                  {.tag = "step-" + std::to_string(step),
                   .step = step,
                   .entries = {{"w", "master", {elements}, begin, end, values}}},
                  ranks);
}
std::vector<std::exception_ptr> save_on_two(const std::string& folder, uint64_t step) {
  return on_threads(2, [&](const CheckpointRanks& ranks) { save(folder, step, ranks); });
}

// A folder that holds steps 1 and 2, copied from one that was saved once.
class Saved : public TemporaryFolder {
 public:
  Saved() { fs::copy(original().path(), path(), fs::copy_options::recursive); }

 private:
  static const TemporaryFolder& original() {
    static const TemporaryFolder folder;
    if (folder.names().empty())
      for (const uint64_t step : {1, 2})
        save_on_two(folder.path(), step);
    return folder;
  }
};

// The step of the newest checkpoint, all of whose elements must be of that step.
uint64_t newest_step(const std::string& folder) {
  const CheckpointReader reader(folder);
  const Tensor w = zeros({elements});
  reader.read("w", "master", 0, elements, w);
  EXPECT_EQ(w.to_vector<float>(), std::vector<float>(elements, static_cast<float>(reader.step())));
  return reader.step();
}

std::string message_of(const std::exception_ptr& error) {
  try {
    if (error)
      std::rethrow_exception(error);
  } catch (const Error& e) {
    return e.what();
  }
  return {};
}

// Saves step 3 on two processes, of which rank `victim` ends at its call number `n`; true if it
// came that far.
bool killed_at(const std::string& folder, int victim, int n) {
  int sockets[2];
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
  pid_t pids[2];
  for (int rank = 0; rank < 2; ++rank) {
    pids[rank] = fork();
    if (pids[rank] != 0)
      continue;
    close(sockets[1 - rank]);
    int calls = 0;
    set_file_fault([&](std::string_view, const std::string&) {
      if (rank == victim && calls++ == n)
        _exit(99);
      return 0;
    });
    try {
      save(folder, 3, test::one_of_two(rank, sockets[rank]));
    } catch (const Error& e) {
      _exit(e.exit_code());
    }
    _exit(0);
  }
  close(sockets[0]);
  close(sockets[1]);
  bool killed = false;
  for (int rank = 0; rank < 2; ++rank) {
    int status = 0;
    EXPECT_EQ(waitpid(pids[rank], &status, 0), pids[rank]);
    EXPECT_TRUE(WIFEXITED(status)) << "rank " << rank << " at call " << n;
    killed |= WEXITSTATUS(status) == 99;
  }
  return killed;
}

TEST(CheckpointFaults, AKillAtAnyPointOnAnyRankLeavesTheNewestCompleteOne) {
  for (const int victim : {0, 1}) {
    int n = 0;
    bool was_new = false;
    for (bool killed = true; killed; ++n) {
      const Saved folder;
      killed = killed_at(folder.path(), victim, n);
      const uint64_t step = newest_step(folder.path());
      EXPECT_TRUE(step == 2 || step == 3) << step;
      EXPECT_FALSE(was_new && step == 2) << "a later kill lost the new checkpoint, call " << n;
      was_new = step == 3;
      EXPECT_GE(list_checkpoints(folder.path()).size(), 2u);

      EXPECT_EQ(message_of(save_on_two(folder.path(), 4)[0]),
                "");  // the next save finds nothing in its way
      EXPECT_EQ(newest_step(folder.path()), 4u);
      for (const std::string& name : folder.names())
        EXPECT_EQ(name.find(".tmp-"), std::string::npos) << name;
    }
    EXPECT_TRUE(was_new);
    EXPECT_GT(n, victim == 0 ? 20 : 4) << "the kills must have met every call";
  }
}

TEST(CheckpointFaults, AFirstSaveThatIsKilledLeavesNoneOrAWholeOne) {
  for (int n = 0, killed = true; killed; ++n) {
    const TemporaryFolder folder;
    killed = killed_at(folder / "out", 0, n);
    try {
      EXPECT_EQ(newest_step(folder / "out"), 3u);
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::bad_input);
      EXPECT_TRUE(list_checkpoints(folder / "out").empty());
    }
  }
}

TEST(CheckpointFaults, AFailedCallOnAnyRankFailsTheSaveOnAll) {
  bool reached = true;
  for (int n = 0; reached; ++n) {
    const Saved folder;
    const int error = n % 2 == 0 ? EIO : ENOSPC;
    std::atomic<int> calls{0};
    std::atomic<bool> pruning{false};
    set_file_fault([&](std::string_view call, const std::string& path) {
      if (call == "rename" && path.find("step-1.tmp-") != std::string::npos)
        pruning = true;
      return calls++ == n ? error : 0;
    });
    const auto errors = save_on_two(folder.path(), 3);
    set_file_fault({});
    reached = calls > n;
    const std::string first = message_of(errors[0]), second = message_of(errors[1]);
    EXPECT_EQ(first, second);
    EXPECT_EQ(first.empty(), pruning || !reached) << "call " << n;
    EXPECT_EQ(newest_step(folder.path()), first.empty() ? 3u : 2u) << "call " << n;
    if (first.empty())
      continue;
    EXPECT_EQ(first.find("rank "), 0u) << first;
    EXPECT_NE(first.find(error == EIO ? "failed: Input/output" : "failed: No space"),
              std::string::npos)
        << first;
    for (const std::string& name : folder.names())
      EXPECT_EQ(name.find(".tmp-"), std::string::npos) << name;
  }
}

TEST(CheckpointFaults, AFullDiskFailsTheSaveAndTheOldOneStays) {
  const TemporaryFolder folder;
  save(folder.path(), 1, {});
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{200, 200};  // the shard is larger
    setrlimit(RLIMIT_FSIZE, &limit);
    try {
      save(folder.path(), 2, {});
    } catch (const Error& e) {
      _exit(e.exit_code());
    }
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), static_cast<int>(ErrorKind::io));
  EXPECT_EQ(newest_step(folder.path()), 1u);
  EXPECT_EQ(folder.names(), (std::vector<std::string>{"latest", "step-1"}));
}

std::string load_error(const std::string& folder, const std::string& tag = {}) {
  std::string messages[2];
  on_threads(2, [&](const CheckpointRanks& ranks) {
    try {
      CheckpointReader reader(folder, tag, ranks);
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::bad_input) << e.what();
      messages[ranks.rank] = e.what();
    }
  });
  EXPECT_EQ(messages[0], messages[1]) << "ranks must refuse together";
  return messages[0];
}

constexpr const char* files[] = {
    "manifest.json", "shard-00000-of-00002.safetensors", "shard-00001-of-00002.safetensors"};

TEST(CheckpointFaults, TruncationAtAnyByteIsRefusedAndTheFileNamed) {
  const TemporaryFolder folder;
  save_on_two(folder.path(), 1);
  for (const char* name : files) {
    const std::string path = folder / ("step-1/" + std::string(name)), whole = contents_of(path);
    for (size_t length = 0; length + 1 < whole.size();
         ++length) {  // the manifest's last byte is a line's end
      put(path, whole.substr(0, length));
      const std::string error = load_error(folder.path());
      ASSERT_NE(error.find(path), std::string::npos)
          << name << " cut to " << length << ": " << error;
    }
    put(path, whole + "x");
    EXPECT_NE(load_error(folder.path()).find(path), std::string::npos)
        << name << " with a byte more";
    put(path, whole);
  }
  EXPECT_EQ(newest_step(folder.path()), 1u);
}

TEST(CheckpointFaults, AFlippedBitAnywhereIsRefusedAndTheFileNamed) {
  const TemporaryFolder folder;
  save_on_two(folder.path(), 1);
  for (const char* name : files) {
    const std::string path = folder / ("step-1/" + std::string(name)), whole = contents_of(path);
    for (size_t i = 0; i < whole.size(); ++i) {
      std::string flipped = whole;
      flipped[i] = static_cast<char>(flipped[i] ^ 1 << i % 8);
      put(path, flipped);
      const std::string error = load_error(folder.path());
      ASSERT_NE(error.find(path), std::string::npos) << name << ", byte " << i << ": " << error;
    }
    put(path, whole);
  }
  EXPECT_EQ(newest_step(folder.path()), 1u);
}

TEST(CheckpointFaults, MissingSwappedAndForeignShardsAreRefused) {
  const Saved folder;
  const std::string shard0 = folder / "step-2/shard-00000-of-00002.safetensors";
  const std::string shard1 = folder / "step-2/shard-00001-of-00002.safetensors";
  const std::string whole0 = contents_of(shard0), whole1 = contents_of(shard1);

  fs::remove(shard1);
  EXPECT_NE(load_error(folder.path()).find(shard1 + ": can't be opened"), std::string::npos);
  put(shard0, whole1);
  put(shard1, whole0);
  EXPECT_NE(load_error(folder.path()).find(shard0), std::string::npos);
  put(shard0, whole0);
  put(shard1, contents_of(folder / "step-1/shard-00001-of-00002.safetensors"));
  EXPECT_NE(load_error(folder.path()).find(shard1 + ": damaged"), std::string::npos);
  put(shard1, whole1);
  EXPECT_EQ(load_error(folder.path()), "");

  // A whole checkpoint under another's name, and one whose manifest is another's.
  fs::copy(folder / "step-2", folder / "step-5", fs::copy_options::recursive);
  EXPECT_NE(load_error(folder.path(), "step-5").find("is the manifest of step-2"),
            std::string::npos);
  put(folder / "step-2/manifest.json", contents_of(folder / "step-1/manifest.json"));
  EXPECT_NE(load_error(folder.path()).find("is the manifest of step-1"), std::string::npos);
}

}  // namespace
}  // namespace sg::dist

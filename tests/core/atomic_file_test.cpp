#include "core/io/atomic_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "core/error.h"
#include "core/io/input_file.h"
#include "tests/core/temporary_folder.h"
#include "tests/errors.h"

namespace sg {
namespace {

using test::error_of;

namespace fs = std::filesystem;
using test::contents_of;
using test::put;
using test::TemporaryFolder;
using Names = std::vector<std::string>;

// Fails call number `n` (from 0) with `error` while it lives.
class FailCall {
 public:
  FailCall(int n, int error) {
    set_file_fault([this, n, error](std::string_view call, const std::string&) {
      calls_.emplace_back(call);
      return static_cast<int>(calls_.size()) - 1 == n ? error : 0;
    });
  }
  ~FailCall() { set_file_fault({}); }
  const Names& calls() const { return calls_; }

 private:
  Names calls_;
};

TEST(AtomicFile, ReplacesAFileInTheOrderThatSurvivesACrash) {
  const TemporaryFolder folder;
  put(folder / "a", "old");
  const FailCall none(-1, 0);
  write_file_atomically(folder / "a", "new");
  EXPECT_EQ(contents_of(folder / "a"), "new");
  EXPECT_EQ(folder.names(), Names{"a"});
  EXPECT_EQ(none.calls(), (Names{"open", "write", "fsync", "close", "rename", "open", "fsync"}));
}

TEST(AtomicFile, AnyFailedCallLeavesAWholeFileAndNoTemporary) {
  const Names calls = {"open", "write", "fsync", "close", "rename", "open", "fsync"};
  for (int n = 0; n < static_cast<int>(calls.size()); ++n) {
    const TemporaryFolder folder;
    put(folder / "a", "old");
    const FailCall failing(n, n == 1 ? ENOSPC : EIO);
    const std::string error =
        error_of(ErrorKind::io, [&] { write_file_atomically(folder / "a", "new"); });
    EXPECT_NE(
        error.find(calls[n] + " failed: " + (n == 1 ? "No space left" : "Input/output error")),
        std::string::npos)
        << error;
    EXPECT_NE(error.find(folder.path()), std::string::npos) << error;
    EXPECT_EQ(contents_of(folder / "a"), n <= 4 ? "old" : "new") << calls[n];
    EXPECT_EQ(folder.names(), Names{"a"}) << calls[n];
    EXPECT_EQ(failing.calls().size(), static_cast<size_t>(n + 1))
        << "a call was made after the failed one";
  }
}

TEST(AtomicFile, AnInterruptedWriteGoesOn) {
  const TemporaryFolder folder;
  const FailCall interrupted(1, EINTR);
  write_file_atomically(folder / "a", "text");
  EXPECT_EQ(contents_of(folder / "a"), "text");
}

// A full disk as the system reports it: a short write, then an error. The limit is the process's,
// so a child takes it.
TEST(AtomicFile, AFullDiskIsAnErrorAndTheOldFileStays) {
  const TemporaryFolder folder;
  put(folder / "a", "old");
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{1000, 1000};
    setrlimit(RLIMIT_FSIZE, &limit);
    try {
      write_file_atomically(folder / "a", std::string(5000, 'x'));
    } catch (const Error& e) {
      _exit(e.exit_code());
    }
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), static_cast<int>(ErrorKind::io));
  EXPECT_EQ(contents_of(folder / "a"), "old");
  EXPECT_EQ(folder.names(), Names{"a"});
}

TEST(FileWriter, DoesNotTouchWhatIsThereAlready) {
  const TemporaryFolder folder;
  put(folder / "a", "mine");
  fs::create_symlink(folder / "elsewhere", folder / "link");
  for (const char* name : {"a", "link"})
    error_of(ErrorKind::io, [&] { FileWriter file(folder / name); });
  EXPECT_EQ(contents_of(folder / "a"), "mine");
  EXPECT_EQ(folder.names(), (Names{"a", "link"}));
}

TEST(FileWriter, HashesWhatItWrites) {
  const TemporaryFolder folder;
  Sha256 hash;
  FileWriter file(folder / "a", &hash);
  file.write("a");
  file.write("bc");
  file.finish();
  EXPECT_EQ(file.bytes(), 3u);
  EXPECT_EQ(hash.hex(), sha256("abc"));
}

TEST(AtomicFile, FoldersAreMadeAndRemovedWithTheirParents) {
  const TemporaryFolder folder;
  create_folders(folder / "x/y/z");
  create_folders(folder / "x/y/z/");
  EXPECT_TRUE(fs::is_directory(folder / "x/y/z"));
  put(folder / "x/y/z/file", "1");
  remove_tree(folder / "x");
  remove_tree(folder / "x");
  EXPECT_EQ(folder.names(), Names{});
  put(folder / "file", "1");
  EXPECT_NE(
      error_of(ErrorKind::io, [&] { create_folders(folder / "file/below"); }).find("mkdir failed"),
      std::string::npos);
}

TEST(InputFile, OnlyRegularFilesAreRead) {
  const TemporaryFolder folder;
  fs::create_directory(folder / "folder");
  ASSERT_EQ(mkfifo((folder / "fifo").c_str(), 0600), 0);
  const auto refused = [&](const std::string& path) {
    return error_of(ErrorKind::bad_input, [&] { InputFile file(path); });
  };
  EXPECT_NE(refused(folder / "missing").find("No such file"), std::string::npos);
  EXPECT_NE(refused(folder / "folder").find("this is a folder"), std::string::npos);
  EXPECT_NE(refused(folder / "fifo").find("this is a FIFO"), std::string::npos);
  EXPECT_NE(refused("/dev/null").find("a device"), std::string::npos);
  EXPECT_NE(refused(std::string("a\0b", 3)).find("NUL"), std::string::npos);
}

TEST(InputFile, AFileThatShrinksIsAnErrorNamingTheByte) {
  const TemporaryFolder folder;
  put(folder / "a", "0123456789");
  const InputFile file(folder / "a");
  ASSERT_EQ(truncate((folder / "a").c_str(), 4), 0);
  char buffer[10];
  const std::string error = error_of(ErrorKind::bad_input, [&] { file.read(0, buffer, 10); });
  EXPECT_NE(error.find("ends at byte 4, was 10 bytes"), std::string::npos) << error;
}

TEST(InputFile, AWholeFileIsReadWithinItsLimit) {
  const TemporaryFolder folder;
  put(folder / "a", "0123456789");
  EXPECT_EQ(read_file(folder / "a", 10), "0123456789");
  EXPECT_NE(error_of(ErrorKind::bad_input, [&] { read_file(folder / "a", 9); })
                .find("10 bytes, at most 9"),
            std::string::npos);
}

}  // namespace
}  // namespace sg

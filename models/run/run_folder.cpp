#include "models/run/run_folder.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <system_error>
#include <thread>

#include "core/io/output_file.h"
#include "dist/checkpoint/checkpoint.h"

namespace sg::models {
namespace {

namespace fs = std::filesystem;

constexpr const char* lock_name = "run.lock";
const std::set<std::string> own_names = {"latest", "metrics.jsonl", lock_name};

std::string host_name() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

struct Owner {
  std::string host;
  int64_t process = 0;
};

Owner owner_in(int fd) {
  std::array<char, 512> text{};
  const ssize_t read = ::pread(fd, text.data(), text.size() - 1, 0);
  Owner owner;
  if (read > 0)
    std::istringstream(text.data()) >> owner.host >> owner.process;
  return owner;
}

[[noreturn]] void refuse(const std::string& folder, const Owner& owner, const std::string& remedy) {
  fail(ErrorKind::usage,
       "{} is in use by process {} on host {}{}",
       folder,
       owner.process,
       owner.host.empty() ? "unknown" : owner.host,
       remedy);
}

// Of a file system without locks: whether the process that the file names still runs.
bool runs_here(const Owner& owner) {
  const auto process = static_cast<pid_t>(owner.process);
  return process > 0 && process != ::getpid() && (::kill(process, 0) == 0 || errno == EPERM);
}

// A killed process holds its locks until the last of its threads has left the kernel, which a
// disk's sync may hold up.
bool is_ending(const Owner& owner) {
  if (owner.process <= 0 || owner.host != host_name())
    return false;
  if (::kill(static_cast<pid_t>(owner.process), 0) != 0 && errno == ESRCH)
    return true;
  std::ifstream file(fmt::format("/proc/{}/stat", owner.process));
  std::string text;
  std::getline(file, text);  // "PID (NAME) STATE …"
  const size_t name = text.rfind(')');
  return name != std::string::npos && name + 2 < text.size() &&
         (text[name + 2] == 'Z' || text[name + 2] == 'X');
}

// False, with errno of the last try: somebody who isn't ending holds it, or the file system has no
// locks.
bool take_lock(int fd) {
  constexpr auto patience = std::chrono::seconds(30);
  const auto begin = std::chrono::steady_clock::now();
  while (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    const int error = errno;
    const bool waits = error == EWOULDBLOCK && std::chrono::steady_clock::now() - begin < patience;
    if (!waits || !is_ending(owner_in(fd))) {
      errno = error;
      return false;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return true;
}

bool same_file(int fd, const std::string& path) {
  struct stat open, named;
  return ::fstat(fd, &open) == 0 && ::stat(path.c_str(), &named) == 0 &&
         open.st_ino == named.st_ino && open.st_dev == named.st_dev;
}

}  // namespace

RunFolder::RunFolder(const std::string& path) {
  create_folders(path);
  std::error_code error;
  path_ = fs::canonical(path, error).string();
  check(ErrorKind::usage, !error && fs::is_directory(path_), "--out {}: a folder is needed", path);
  file_ = path_ + "/" + lock_name;
  while (!lock())
    ::close(fd_);
  const std::string text = fmt::format("{} {}\n", host_name(), ::getpid());
  const bool written = ::ftruncate(fd_, 0) == 0 && ::pwrite(fd_, text.data(), text.size(), 0) ==
                                                       static_cast<ssize_t>(text.size());
  const int failure = errno;
  if (written)
    return;
  ::close(fd_);
  fail(ErrorKind::io, "{}: write failed: {}", file_, std::generic_category().message(failure));
}

// False: the file that was locked is no longer the one of that name.
bool RunFolder::lock() {
  fd_ = ::open(file_.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
  const int error = errno;
  check(ErrorKind::io,
        fd_ >= 0,
        "{}: open failed: {}",
        file_,
        std::generic_category().message(error));
  const bool locked = take_lock(fd_);
  const bool busy = !locked && errno == EWOULDBLOCK;
  const Owner owner = owner_in(fd_);
  const bool elsewhere = !owner.host.empty() && owner.host != host_name();
  if (busy || elsewhere || (!locked && runs_here(owner))) {
    ::close(fd_);
    refuse(path_,
           owner,
           busy ? "; use another --out" : fmt::format("; where that has ended, remove {}", file_));
  }
  return same_file(fd_, file_);
}

RunFolder::~RunFolder() {
  if (same_file(fd_, file_))
    ::unlink(file_.c_str());
  ::close(fd_);
}

std::optional<int64_t> steps_held(const std::string& folder) {
  const auto checkpoints = dist::list_checkpoints(folder);
  if (!checkpoints.empty())
    return static_cast<int64_t>(checkpoints.back().step);
  if (fs::exists(fs::symlink_status(folder + "/latest")))
    return 0;  // it names what is damaged
  return std::nullopt;
}

void remove_run(const std::string& folder) {
  remove_tree(folder + "/latest");
  for (const dist::CheckpointName& name : dist::list_checkpoints(folder))
    remove_tree(folder + "/" + name.tag);
  remove_tree(folder + "/metrics.jsonl");
}

std::string followed(const std::string& path) {
  std::error_code absent;
  const fs::path real = fs::canonical(path, absent);
  return absent ? path : real.string();
}

namespace {

// With `outside` nothing may lie in a run's folder, else only what the run doesn't call its own.
void check_place(const std::string& option,
                 const std::string& path,
                 const std::string& out,
                 bool outside) {
  const fs::path target = fs::weakly_canonical(path);
  const auto holds_run = [&](const fs::path& folder) {
    return folder == out || !dist::list_checkpoints(folder.string()).empty();
  };
  for (fs::path folder = target.parent_path(), inside = target.filename();;
       inside = folder.filename() / inside, folder = folder.parent_path()) {
    if (holds_run(folder)) {
      const std::string first = inside.begin()->string();
      const bool own = own_names.contains(first) || fs::exists(folder / first / "manifest.json");
      check(!outside && !own,
            "{} {}: lies in the folder of a run, {}{}",
            option,
            path,
            folder.string(),
            outside ? "; write it elsewhere" : ", which keeps its own there");
    }
    if (folder == folder.parent_path())
      return;
  }
}

}  // namespace

void check_output_option(const std::string& option,
                         const std::string& path,
                         const std::string& out,
                         bool outside) {
  check_output(path);
  check_place(option, path, out, outside);
}

void check_outside_runs(const std::string& option,
                        const std::string& path,
                        const std::string& out) {
  check(!fs::exists(fs::symlink_status(path)) || dist::list_checkpoints(path).empty(),
        "{} {}: is the folder of a run; write it elsewhere",
        option,
        path);
  check_place(option, path, out, true);
}

void check_reports(const TrainOptions& options) {
  if (!options.receipt.empty())
    check_output_option("--receipt", options.receipt, options.out, false);
  if (!options.trace.empty())
    check_output_option("--trace", options.trace, options.out, false);
}

}  // namespace sg::models

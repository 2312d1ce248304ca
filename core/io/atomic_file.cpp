#include "core/io/atomic_file.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <random>
#include <system_error>

#include "core/error.h"

namespace sg {
namespace {

std::atomic<bool> faults_on{false};
FileFault file_fault;

// Fails as a test asks, in the place of the call that follows.
bool fault(std::string_view call, const std::string& path) {
  if (!faults_on.load(std::memory_order_acquire)) [[likely]]
    return false;
  const int error = file_fault(call, path);
  if (error != 0)
    errno = error;
  return error != 0;
}

[[noreturn]] void fail_call(std::string_view call, const std::string& path) {
  const int error = errno;
  fail(ErrorKind::io, "{}: {} failed: {}", path, call, std::generic_category().message(error));
}

}  // namespace

void set_file_fault(FileFault fault) {
  faults_on.store(false, std::memory_order_release);
  file_fault = std::move(fault);
  faults_on.store(file_fault != nullptr, std::memory_order_release);
}

FileWriter::FileWriter(std::string path, Sha256* hash)
    : FileWriter(std::move(path), Kind::fresh, hash) {}

FileWriter::FileWriter(std::string path, Kind kind, Sha256* hash)
    : path_(std::move(path)), kind_(kind), hash_(hash) {
  constexpr int fresh = O_CREAT | O_EXCL | O_NOFOLLOW;
  constexpr int in_place =
      O_APPEND | O_NOCTTY | O_NONBLOCK;  // a FIFO that nobody reads is an error, not a wait
  const int flags = O_WRONLY | O_CLOEXEC | (kind_ == Kind::fresh ? fresh : in_place);
  if (!fault("open", path_))
    fd_ = ::open(path_.c_str(), flags, 0666);
  if (fd_ < 0)
    fail_call("open", path_);
  if (kind_ == Kind::in_place)
    ::fcntl(fd_, F_SETFL, O_APPEND);
}

FileWriter::~FileWriter() {
  if (fd_ >= 0)
    ::close(fd_);
  if (!finished_ && kind_ == Kind::fresh)
    ::unlink(path_.c_str());
}

void FileWriter::write(const void* data, uint64_t bytes) {
  if (hash_)
    hash_->update(data, bytes);
  const char* next = static_cast<const char*>(data);
  for (uint64_t left = bytes; left > 0;) {
    const size_t chunk = std::min<uint64_t>(left, uint64_t{1} << 30);
    const ssize_t written = fault("write", path_) ? -1 : ::write(fd_, next, chunk);
    if (written < 0 && errno == EINTR)
      continue;
    if (written <= 0)
      fail_call("write", path_);
    next += written;
    left -= static_cast<uint64_t>(written);
  }
  bytes_ += bytes;
}

void FileWriter::finish() {
  const bool synced =
      !fault("fsync", path_) && (::fsync(fd_) == 0 || (kind_ == Kind::in_place && errno == EINVAL));
  if (!synced)
    fail_call("fsync", path_);
  const int closed = fault("close", path_) ? -1 : ::close(fd_);
  if (closed != 0)
    fail_call("close", path_);
  fd_ = -1;
  finished_ = true;
}

AtomicFileWriter::AtomicFileWriter(std::string path, Sha256* hash)
    : FileWriter(path + unique_suffix(), hash), final_path_(std::move(path)) {}

void AtomicFileWriter::commit() {
  finish();
  try {
    rename_durably(FileWriter::path(), final_path_);
  } catch (...) {
    ::unlink(FileWriter::path().c_str());
    throw;
  }
}

void write_file_atomically(const std::string& path, std::string_view contents) {
  AtomicFileWriter file(path);
  file.write(contents);
  file.commit();
}

std::string unique_suffix() {
  std::random_device random;
  return fmt::format(".tmp-{:08x}{:08x}", random(), random());
}

std::string parent_folder(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

void create_folders(const std::string& path) {
  struct stat status;
  if (path.empty() || (::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode)))
    return;
  const std::string parent = parent_folder(path);
  if (parent != path)
    create_folders(parent);
  if (fault("mkdir", path) || (::mkdir(path.c_str(), 0777) != 0 && errno != EEXIST))
    fail_call("mkdir", path);
  sync_folder(parent);
}

void sync_folder(const std::string& path) {
  const int fd =
      fault("open", path) ? -1 : ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0)
    fail_call("open", path);
  // Some file systems don't know fsync of a folder and say EINVAL; they order renames by
  // themselves.
  const bool synced = !fault("fsync", path) && (::fsync(fd) == 0 || errno == EINVAL);
  const int error = errno;
  ::close(fd);
  errno = error;
  if (!synced)
    fail_call("fsync", path);
}

void rename_durably(const std::string& from, const std::string& to) {
  if (fault("rename", to) || ::rename(from.c_str(), to.c_str()) != 0)
    fail_call("rename", to);
  sync_folder(parent_folder(to));
}

void exchange_durably(const std::string& a, const std::string& b) {
  if (fault("rename", b) ||
      ::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) != 0)
    fail_call("exchange of names", b);
  sync_folder(parent_folder(b));
}

void remove_tree(const std::string& path) {
  invariant(path.find('\0') == std::string::npos,
            "remove: a NUL byte would cut the path {}",
            path.c_str());
  std::error_code error;
  if (!fault("remove", path))
    std::filesystem::remove_all(path, error);
  else
    error = std::error_code(errno, std::generic_category());
  check(ErrorKind::io, !error, "{}: remove failed: {}", path, error.message());
}

}  // namespace sg

#include "core/io/input_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "core/error.h"

namespace sg {
namespace {

const char* kind_of(mode_t mode) {
  if (S_ISDIR(mode))
    return "a folder";
  if (S_ISFIFO(mode))
    return "a FIFO";
  return "a device or a socket";
}

}  // namespace

InputFile::InputFile(std::string path) : path_(std::move(path)) {
  check(ErrorKind::bad_input,
        path_.find('\0') == std::string::npos,
        "open: a path has no NUL byte: \"{}\"",
        path_.c_str());
  fd_ = ::open(
      path_.c_str(),
      O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // non-blocking: a FIFO without a writer opens at once
  const int error = errno;
  check(ErrorKind::bad_input,
        fd_ >= 0,
        "{}: can't be opened: {}",
        path_,
        std::generic_category().message(error));
  struct stat status;
  const bool known = ::fstat(fd_, &status) == 0;
  if (!known || !S_ISREG(status.st_mode)) {
    ::close(std::exchange(fd_, -1));
    fail(ErrorKind::bad_input,
         "{}: a file is needed, this is {}",
         path_,
         known ? kind_of(status.st_mode) : "unknown");
  }
  size_ = static_cast<uint64_t>(status.st_size);
}

InputFile::InputFile(InputFile&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)), size_(other.size_) {}

InputFile::~InputFile() {
  if (fd_ >= 0)
    ::close(fd_);
}

void InputFile::read(uint64_t offset, void* out, uint64_t bytes) const {
  char* next = static_cast<char*>(out);
  while (bytes > 0) {
    const ssize_t got = ::pread(
        fd_, next, std::min<uint64_t>(bytes, uint64_t{1} << 30), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR)
      continue;
    const int error = errno;
    check(ErrorKind::io,
          got >= 0,
          "{}: read at byte {} failed: {}",
          path_,
          offset,
          std::generic_category().message(error));
    check(ErrorKind::bad_input,
          got > 0,
          "{}: ends at byte {}, was {} bytes when it was opened",
          path_,
          offset,
          size_);
    next += got;
    offset += static_cast<uint64_t>(got);
    bytes -= static_cast<uint64_t>(got);
  }
}

std::unique_ptr<FileMapping> InputFile::map() const {
  return std::make_unique<FileMapping>(fd_, size_, path_);
}

std::string read_file(const std::string& path, uint64_t limit) {
  const InputFile file(path);
  check(ErrorKind::bad_input,
        file.size() <= limit,
        "{}: {} bytes, at most {} are read",
        path,
        file.size(),
        limit);
  std::string contents(file.size(), '\0');
  file.read(0, contents.data(), contents.size());
  return contents;
}

}  // namespace sg

// Files that are read: every length is checked against the real size, and nothing but a regular
// file is taken.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "core/io/file_mapping.h"

namespace sg {

// Reading doesn't move a position, so threads may share one. read() doesn't map: its pages don't
// count as this process's memory.
class InputFile {
 public:
  // Error bad_input when it is missing, no regular file (a FIFO doesn't block) or not readable.
  explicit InputFile(std::string path);
  ~InputFile();
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&&) = delete;

  const std::string& path() const { return path_; }
  uint64_t size() const { return size_; }  // when it was opened

  // Exactly `bytes` bytes from `offset`. Error bad_input when the file has shrunk, io when the
  // system can't read.
  void read(uint64_t offset, void* out, uint64_t bytes) const;
  std::unique_ptr<FileMapping> map() const;  // all of it

 private:
  std::string path_;
  int fd_ = -1;
  uint64_t size_ = 0;
};

// The whole of a file; longer than `limit` bytes is bad_input.
std::string read_file(const std::string& path, uint64_t limit);

}  // namespace sg

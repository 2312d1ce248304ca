// A file's bytes as memory: nothing is read before it is touched, and pages that nobody needs go
// back to the system by themselves.
#pragma once
#include <cstdint>
#include <string>

namespace sg {

struct MappedRange;  // file_mapping.cpp

// A mapped file may shrink under its readers, which would end the process by SIGBUS. Here such a
// page reads as zeros, and check_whole() tells. (A handler of SIGBUS, set with the first mapping,
// does it; what isn't ours goes to the handler before it.)
class FileMapping {
 public:
  // `fd` open for reading, of `size` bytes; may be closed afterwards. Error io.
  FileMapping(int fd, uint64_t size, std::string path);
  ~FileMapping();
  FileMapping(const FileMapping&) = delete;
  FileMapping& operator=(const FileMapping&) = delete;

  const char* data() const { return data_; }
  void forget(uint64_t offset, uint64_t bytes) const;  // this process needn't hold these pages
  // Error bad_input where a page was touched that the file no longer had: what was read isn't its.
  void check_whole() const;

 private:
  const std::string path_;
  const uint64_t size_;
  char* data_ = nullptr;
  MappedRange* range_ = nullptr;
};

}  // namespace sg

// Files that a user named for a result: written whole, where the name leads.
#pragma once
#include <string>
#include <string_view>

#include "core/io/atomic_file.h"

namespace sg {

// Links are followed, and what they lead to is replaced as atomic_file.h does it. A device, a FIFO
// or a descriptor
// (/dev/stdout) is written to, never replaced. Errors: io, also for a folder and for a FIFO that
// nobody reads.
class OutputFile : public FileWriter {
 public:
  explicit OutputFile(const std::string& path);
  void commit();  // then all of it is there

 private:
  struct Target {
    std::string path;
    bool in_place;
  };
  explicit OutputFile(Target target);
  static Target target_of(const std::string& path);
  friend void check_output(const std::string& path);

  const Target target_;
};

void write_output(const std::string& path, std::string_view contents);
// Whether such a file could be written now: error io, before work is done that would be lost.
void check_output(const std::string& path);

}  // namespace sg

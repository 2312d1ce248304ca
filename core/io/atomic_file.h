// Files written as temporary → fsync → rename → fsync of the folder: a reader sees the old file or
// the new one, never a part.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "core/io/hash.h"

namespace sg {

// Errors of everything here: io, naming the file, the failed call and errno's text. A failed fsync
// is never retried, since the kernel may have dropped the pages and would report success.

// The old file or the new one is left, and no temporary file (it is `path`.tmp-<unique> until the
// rename).
void write_file_atomically(const std::string& path, std::string_view contents);

// A file under construction. `path` must not exist, not even as a symbolic link. Unless finish()
// came through, the file is removed again. Everything written is added to `hash`, where one is
// given.
class FileWriter {
 public:
  explicit FileWriter(std::string path, Sha256* hash = nullptr);
  ~FileWriter();
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  void write(const void* data, uint64_t bytes);
  void write(std::string_view text) { write(text.data(), text.size()); }
  void finish();  // fsync and close
  const std::string& path() const { return path_; }
  uint64_t bytes() const { return bytes_; }

 protected:
  enum class Kind { fresh, in_place };
  FileWriter(std::string path,
             Kind kind,
             Sha256* hash);  // in place: what is there, which isn't ours to remove

 private:
  const std::string path_;
  const Kind kind_;
  Sha256* const hash_;
  uint64_t bytes_ = 0;
  int fd_ = -1;
  bool finished_ = false;
};

// The same under a temporary name: `path` changes at commit() alone.
class AtomicFileWriter : public FileWriter {
 public:
  explicit AtomicFileWriter(std::string path, Sha256* hash = nullptr);
  void commit();  // finish, rename, fsync of the folder

 private:
  const std::string final_path_;
};

std::string unique_suffix();                         // ".tmp-" and 16 random hex digits
std::string parent_folder(const std::string& path);  // "." for a bare name
void create_folders(const std::string& path);        // the missing ones, each made durable
void sync_folder(const std::string& path);  // what was renamed, made or removed in it is durable
void rename_durably(const std::string& from,
                    const std::string& to);  // replaces a file; then fsync of `to`'s folder
void exchange_durably(const std::string& a,
                      const std::string& b);  // both exist and swap names in one step
void remove_tree(const std::string& path);  // a file or a folder with all it holds; absent is fine

// For tests: asked before each call ("open", "write", "fsync", "close", "rename", "mkdir",
// "remove") with its path; the answer is an errno for the call to fail with, or 0. Process-wide; an
// empty function ends it. Without one the price is one load.
using FileFault = std::function<int(std::string_view call, const std::string& path)>;
void set_file_fault(FileFault fault);

}  // namespace sg

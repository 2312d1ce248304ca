#include "core/io/output_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "core/error.h"

namespace sg {
namespace {

constexpr int most_links = 40;  // as the kernel has it

// Such a link stands for an open file, which may have no name.
bool is_descriptor(const std::string& path) {
  return path.starts_with("/proc/") || path.starts_with("/dev/fd/");
}

[[noreturn]] void fail_output(const std::string& path, int error) {
  fail(ErrorKind::io, "{}: can't be written: {}", path, std::generic_category().message(error));
}

}  // namespace

OutputFile::Target OutputFile::target_of(const std::string& path) {
  check(!path.empty() && path.find('\0') == std::string::npos,
        "output: \"{}\" is no file's name",
        path.c_str());
  std::string name = path;
  for (int links = 0; links < most_links; ++links) {
    struct stat status;
    if (::lstat(name.c_str(), &status) != 0) {
      if (errno != ENOENT)
        fail_output(path, errno);
      check(ErrorKind::io, !name.ends_with('/'), "{}: a folder's name; a file is needed", path);
      return {name, false};
    }
    check(ErrorKind::io, !S_ISDIR(status.st_mode), "{}: a folder; a file is needed", path);
    if (S_ISREG(status.st_mode))
      return {name, is_descriptor(name)};
    if (!S_ISLNK(status.st_mode) || is_descriptor(name))
      return {name, true};
    const std::filesystem::path link = std::filesystem::read_symlink(name);
    name = link.is_absolute() ? link.string() : parent_folder(name) + "/" + link.string();
  }
  fail(ErrorKind::io,
       "{}: can't be written: more than {} links, one behind another",
       path,
       most_links);
}

OutputFile::OutputFile(const std::string& path) : OutputFile(target_of(path)) {}

OutputFile::OutputFile(Target target)
    : FileWriter(target.in_place ? target.path : target.path + unique_suffix(),
                 target.in_place ? Kind::in_place : Kind::fresh,
                 nullptr),
      target_(std::move(target)) {}

void OutputFile::commit() {
  finish();
  if (target_.in_place)
    return;
  try {
    rename_durably(FileWriter::path(), target_.path);
  } catch (...) {
    ::unlink(FileWriter::path().c_str());
    throw;
  }
}

void write_output(const std::string& path, std::string_view contents) {
  OutputFile file(path);
  file.write(contents);
  file.commit();
}

void check_output(const std::string& path) {
  const OutputFile::Target target = OutputFile::target_of(path);
  if (!target.in_place) {
    const OutputFile probe(target);  // and removed again
  } else if (::access(target.path.c_str(), W_OK) != 0) {
    fail_output(path, errno);
  }
}

}  // namespace sg

// Files written as temporary → fsync → rename → fsync of the folder: a reader sees the old file or the new one, never a
// part.
#pragma once
#include <string>
#include <string_view>

namespace sg {

// Error io names the file, the failed call and errno's text; the old file and no temporary file are left behind. A
// failed fsync is never retried.
void write_file_atomically(const std::string& path, std::string_view contents);

}  // namespace sg

// Internal to dist/checkpoint: the manifest, tags, and what a checkpoint's folder may be.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/error.h"

namespace sg::dist {

struct ShardFile {
  uint64_t bytes = 0;
  std::string sha256;
};

struct Manifest {
  std::string tag;
  uint64_t step = 0, sequence = 0;
  std::string numerics = "{}", engine = "{}", state = "{}";  // JSON objects
  std::string run{};                // which run saved it; empty: it doesn't say
  std::vector<ShardFile> shards{};  // by rank
};

std::string to_text(const Manifest& manifest);
// Error bad_input, naming `path`, unless it is a manifest with its own right hash, of the tag that
// its folder's name gives.
Manifest read_manifest(const std::string& path, const std::string& tag);

std::string manifest_path(const std::string& checkpoint);
std::string shard_path(const std::string& checkpoint, int rank, int world);

// A tag is one name: letters, digits and . _ -, at most 100, no leading dot, not "latest", no
// temporary's name.
void check_tag(const std::string& tag, ErrorKind kind);
bool is_tag(const std::string& tag);
// DIR and DIR/<tag> are folders themselves, no symbolic links, which could lead a save or a prune
// elsewhere.
void check_folder(const std::string& path, ErrorKind kind);
bool exists(const std::string& path);  // as anything, a dangling link too

}  // namespace sg::dist

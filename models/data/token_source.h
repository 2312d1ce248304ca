// Where ids come from: memory, or a file that stays on disk.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace sg::models {

// Thread-safe.
class TokenSource {
 public:
  virtual ~TokenSource() = default;
  virtual uint64_t size() const = 0;
  virtual void read(uint64_t begin, std::span<uint16_t> out) const = 0;  // within size()
  const std::string& fingerprint() const { return fingerprint_; }        // SHA-256 of all ids, 16 bits each

 protected:
  std::string fingerprint_;
};

std::shared_ptr<const TokenSource> tokens_in_memory(std::vector<uint16_t> ids);

// 16-bit ids, little-endian: nanoGPT's bare ones, or llm.c's behind a header of 256 int32 (magic 20240520, version 1,
// count). Every id must lie below `vocabulary`; all are looked at now, so that a run doesn't end on one later.
// bad_input names the file and the place in it.
std::shared_ptr<const TokenSource> tokens_in_file(const std::string& path, int64_t vocabulary);

}  // namespace sg::models

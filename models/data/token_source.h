// Where ids come from: memory, or a file that stays on disk.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace sg::models {

// Ids are 32 bits wide in memory, whatever their file has. Thread-safe.
class TokenSource {
 public:
  virtual ~TokenSource() = default;
  virtual uint64_t size() const = 0;
  virtual void read(uint64_t begin, std::span<int32_t> out) const = 0;  // within size()
  // SHA-256 of all ids, little-endian: 16 bits each where all of them fit, else 32.
  const std::string& fingerprint() const { return fingerprint_; }

 protected:
  std::string fingerprint_;
};

std::shared_ptr<const TokenSource> tokens_in_memory(std::vector<int32_t> ids);  // none negative

// 16-bit ids, little-endian: nanoGPT's bare ones, or llm.c's behind a header of 256 int32 (magic
// 20240520, version 1, count). Every id must lie below `vocabulary`; all are looked at now, so that
// a run doesn't end on one later. bad_input names the file and the place in it.
std::shared_ptr<const TokenSource> tokens_in_file(const std::string& path, int64_t vocabulary);

}  // namespace sg::models

#include "models/data/token_source.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "core/error.h"
#include "core/io/hash.h"
#include "core/io/input_file.h"

namespace sg::models {
namespace {

template <class Id>
std::string fingerprint_of(const std::vector<int32_t>& ids) {
  Sha256 hash;
  std::vector<Id> part;
  constexpr size_t length = size_t{1} << 20;
  for (size_t begin = 0; begin < ids.size(); begin += length) {
    const auto first = ids.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto count = static_cast<std::ptrdiff_t>(std::min(length, ids.size() - begin));
    part.assign(first, first + count);
    hash.update(part.data(), part.size() * sizeof(Id));
  }
  return hash.hex();
}

class MemoryTokens final : public TokenSource {
 public:
  explicit MemoryTokens(std::vector<int32_t> ids) : ids_(std::move(ids)) {
    const auto wide = [](int32_t id) { return id > std::numeric_limits<uint16_t>::max(); };
    const bool any_wide = std::any_of(ids_.begin(), ids_.end(), wide);
    fingerprint_ = any_wide ? fingerprint_of<int32_t>(ids_) : fingerprint_of<uint16_t>(ids_);
  }
  uint64_t size() const override { return ids_.size(); }
  void read(uint64_t begin, std::span<int32_t> out) const override {
    std::copy_n(ids_.begin() + static_cast<std::ptrdiff_t>(begin), out.size(), out.begin());
  }

 private:
  const std::vector<int32_t> ids_;
};

constexpr uint64_t header_bytes = 1024;
constexpr int32_t magic_16bit = 20240520, magic_32bit = 20240801;

class FileTokens final : public TokenSource {
 public:
  FileTokens(const std::string& path, int64_t vocabulary) : file_(path), vocabulary_(vocabulary) {
    check(ErrorKind::bad_input, file_.size() > 0, "{}: a token file can't be empty", path);
    std::array<int32_t, 3> header{};  // magic, version, count
    file_.read(0, header.data(), std::min<uint64_t>(file_.size(), sizeof header));
    if (header[0] == magic_16bit || header[0] == magic_32bit)
      read_header(header);
    else
      bare();
    look_at_all();
  }

  uint64_t size() const override { return size_; }

  void read(uint64_t begin, std::span<int32_t> out) const override {
    std::vector<uint16_t> ids(out.size());
    read_file(begin, ids);
    std::copy(ids.begin(), ids.end(), out.begin());
  }

 private:
  void read_file(uint64_t begin, std::span<uint16_t> out) const {
    file_.read(data_begin_ + begin * sizeof(uint16_t), out.data(), out.size_bytes());
    int64_t largest = 0;
    for (const uint16_t id : out)
      largest = std::max<int64_t>(largest, id);
    if (largest >= vocabulary_) [[unlikely]]
      refuse(begin, out);
  }

  template <class... Args>
  void require(bool ok,
               fmt::format_string<const std::string&, Args...> format,
               Args&&... args) const {
    check(ErrorKind::bad_input, ok, format, file_.path(), std::forward<Args>(args)...);
  }

  void read_header(const std::array<int32_t, 3>& header) {
    const auto [magic, version, count] = header;
    require(magic == magic_16bit,
            "{}: llm.c's file of 32-bit ids (magic {}); 16-bit ids are read (magic {})",
            magic,
            magic_16bit);
    require(file_.size() >= header_bytes,
            "{}: {} bytes, llm.c's header alone has {}",
            file_.size(),
            header_bytes);
    require(version == 1, "{}: version {} of llm.c's token files; 1 is read", version);
    const uint64_t bytes = file_.size() - header_bytes;
    require(count > 0, "{}: the header counts {} tokens", count);
    require(static_cast<uint64_t>(count) * 2 == bytes,
            "{}: the header counts {} tokens, {} bytes, but {} bytes follow it",
            count,
            static_cast<uint64_t>(count) * 2,
            bytes);
    data_begin_ = header_bytes;
    size_ = static_cast<uint64_t>(count);
  }

  void bare() {
    require(
        file_.size() % 2 == 0, "{}: {} bytes; a file of 16-bit ids has an even size", file_.size());
    size_ = file_.size() / 2;
  }

  void look_at_all() {
    Sha256 hash;
    std::vector<uint16_t> ids(std::min<uint64_t>(size_, uint64_t{1} << 20));
    for (uint64_t begin = 0; begin < size_; begin += ids.size()) {
      const std::span part(ids.data(), std::min<uint64_t>(ids.size(), size_ - begin));
      read_file(begin, part);
      hash.update(part.data(), part.size_bytes());
    }
    fingerprint_ = hash.hex();
  }

  [[noreturn]] void refuse(uint64_t begin, std::span<const uint16_t> ids) const {
    const auto found =
        std::find_if(ids.begin(), ids.end(), [&](uint16_t id) { return id >= vocabulary_; });
    const uint64_t index = begin + static_cast<uint64_t>(found - ids.begin());
    fail(ErrorKind::bad_input,
         "{}: token {}, at byte {}, is {}: not below the vocabulary of {}",
         file_.path(),
         index,
         data_begin_ + index * 2,
         *found,
         vocabulary_);
  }

  const InputFile file_;
  const int64_t vocabulary_;
  uint64_t data_begin_ = 0, size_ = 0;
};

}  // namespace

std::shared_ptr<const TokenSource> tokens_in_memory(std::vector<int32_t> ids) {
  return std::make_shared<MemoryTokens>(std::move(ids));
}

std::shared_ptr<const TokenSource> tokens_in_file(const std::string& path, int64_t vocabulary) {
  return std::make_shared<FileTokens>(path, vocabulary);
}

}  // namespace sg::models

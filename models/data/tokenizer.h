// Text to token ids and back. A tokenizer is a small value; checkpoints keep it as JSON.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sg::models {

class Tokenizer {
 public:
  // bytes: 256 ids. chars: the sorted Unicode code points of a text, as nanoGPT has them. ids: a
  // token file's own, whose text nobody here knows: they decode to their numbers.
  enum class Kind : uint8_t { bytes, chars, ids };

  static Tokenizer from_json(const std::string& text,
                             const std::string& source);  // bad_input names `source`
  std::string to_json() const;  // {"kind": "chars", "vocabulary": [10, 32, …]}

  Kind kind() const { return kind_; }
  const char* name() const;
  int64_t size() const;  // ids are 0 … size − 1
  // A CharTokenizer{} has no vocabulary until it met its text.
  bool needs_text() const { return kind_ == Kind::chars && code_points_.empty(); }

  // Error bad_input, naming `source` and the byte, for a character outside the vocabulary or text
  // that isn't UTF-8 (chars), or for anything but ids below size() with spaces between them (ids).
  std::vector<int32_t> encode(std::string_view text, const std::string& source) const;
  std::string decode(std::span<const int32_t> ids) const;  // an id out of range is a usage error

 protected:
  explicit Tokenizer(Kind kind, int64_t size = 0) : kind_(kind), size_(size) {}
  Kind kind_;
  int64_t size_ = 0;                   // ids only
  std::vector<char32_t> code_points_;  // chars only: ascending, by id
};

struct ByteTokenizer : Tokenizer {
  ByteTokenizer() : Tokenizer(Kind::bytes) {}
};

struct CharTokenizer : Tokenizer {
  CharTokenizer()
      : Tokenizer(Kind::chars) {
  }  // takes its vocabulary from the text of the dataset that it is given to
  // Text that isn't UTF-8 is bad_input and names `source`.
  CharTokenizer(std::string_view text, const std::string& source);
};

struct IdTokenizer : Tokenizer {
  explicit IdTokenizer(int64_t size) : Tokenizer(Kind::ids, size) {}
};

}  // namespace sg::models

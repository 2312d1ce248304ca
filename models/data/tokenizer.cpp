#include "models/data/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <bitset>
#include <charconv>
#include <memory>
#include <sstream>

#include "core/error.h"
#include "core/io/json.h"
#include "models/data/utf8.h"

namespace sg::models {
namespace {

constexpr size_t code_point_limit = 0x110000;

constexpr const char* names[] = {"bytes", "chars", "ids"};

// "17 4 250", as decode writes them.
std::vector<int32_t> numbers_of(std::string_view text, int64_t size, const std::string& source) {
  std::vector<int32_t> ids;
  std::istringstream words{std::string(text)};
  for (std::string word; words >> word;) {
    int64_t id = -1;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), id);
    check(ErrorKind::bad_input,
          error == std::errc() && end == word.data() + word.size() && 0 <= id && id < size,
          "{}: \"{}\" is no id below {}; a model of a token file takes ids by spaces, it has no "
          "tokenizer for text",
          source,
          word,
          size);
    ids.push_back(static_cast<int32_t>(id));
  }
  return ids;
}

}  // namespace

const char* Tokenizer::name() const {
  return names[static_cast<int>(kind_)];
}

int64_t Tokenizer::size() const {
  switch (kind_) {
    case Kind::bytes: return 256;
    case Kind::chars: return static_cast<int64_t>(code_points_.size());
    case Kind::ids: return size_;
  }
  return 0;
}

CharTokenizer::CharTokenizer(std::string_view text, const std::string& source)
    : Tokenizer(Kind::chars) {
  const auto seen = std::make_unique<std::bitset<code_point_limit>>();
  for (size_t position = 0; position < text.size();)
    seen->set(next_code_point(text, position, source));
  for (size_t c = 0; c < code_point_limit; ++c)
    if (seen->test(c))
      code_points_.push_back(static_cast<char32_t>(c));
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, const std::string& source) const {
  if (kind_ == Kind::ids)
    return numbers_of(text, size_, source);
  if (kind_ == Kind::bytes) {
    const auto* bytes = reinterpret_cast<const unsigned char*>(text.data());
    return {bytes, bytes + text.size()};
  }
  constexpr uint32_t none = ~0u;
  std::vector<uint32_t> id_of(code_points_.empty() ? 0 : code_points_.back() + 1, none);
  for (size_t id = 0; id < code_points_.size(); ++id)
    id_of[code_points_[id]] = static_cast<uint32_t>(id);
  std::vector<int32_t> ids;
  ids.reserve(text.size());
  for (size_t position = 0; position < text.size();) {
    const size_t begin = position;
    const char32_t c = next_code_point(text, position, source);
    const uint32_t id = c < id_of.size() ? id_of[c] : none;
    check(ErrorKind::bad_input,
          id != none,
          "{}: character U+{:04X} at byte {} is none of the vocabulary's {}",
          source,
          static_cast<uint32_t>(c),
          begin,
          code_points_.size());
    ids.push_back(static_cast<int32_t>(id));
  }
  return ids;
}

std::string Tokenizer::decode(std::span<const int32_t> ids) const {
  std::string text;
  for (const int32_t id : ids) {
    check(id >= 0 && id < size(), "decode: id {} of a vocabulary of {}", id, size());
    switch (kind_) {
      case Kind::bytes: text += static_cast<char>(id); break;
      case Kind::chars: append_utf8(text, code_points_[static_cast<size_t>(id)]); break;
      case Kind::ids: text += fmt::format("{} ", id); break;
    }
  }
  return text;
}

std::string Tokenizer::to_json() const {
  nlohmann::json json = {{"kind", name()}};
  if (kind_ == Kind::chars)
    json["vocabulary"] = std::vector<uint32_t>(code_points_.begin(), code_points_.end());
  if (kind_ == Kind::ids)
    json["size"] = size_;
  return json.dump();
}

Tokenizer Tokenizer::from_json(const std::string& text, const std::string& source) {
  const auto require = [&](bool ok, const char* rule) {
    check(ErrorKind::bad_input, ok, "{}: tokenizer: {}", source, rule);
  };
  const nlohmann::json json = parse_json(text, source);
  require(json.is_object() && json.contains("kind"), "an object with a kind is needed");
  if (json["kind"] == names[0])
    return ByteTokenizer();
  if (json["kind"] == names[2]) {
    require(json.contains("size") && json["size"].is_number_unsigned(), "ids need a size");
    return IdTokenizer(json["size"].get<int64_t>());
  }
  require(json["kind"] == names[1], "the kind is none of bytes, chars, ids");
  require(json.contains("vocabulary") && json["vocabulary"].is_array(), "chars need a vocabulary");
  Tokenizer chars(Kind::chars);
  for (const auto& value : json["vocabulary"]) {
    const uint64_t c = value.is_number_unsigned() ? value.get<uint64_t>() : code_point_limit;
    require(c < code_point_limit && (chars.code_points_.empty() || c > chars.code_points_.back()),
            "the vocabulary must be ascending code points");
    chars.code_points_.push_back(static_cast<char32_t>(c));
  }
  require(!chars.code_points_.empty(), "a vocabulary has at least one character");
  return chars;
}

}  // namespace sg::models

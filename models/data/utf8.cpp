#include "models/data/utf8.h"

#include "core/error.h"

namespace sg::models {

char32_t next_code_point(std::string_view text, size_t& position, const std::string& source) {
  const auto byte = [&](size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u;
  };
  const unsigned first = byte(position);
  if (first < 0x80)
    return text[position++];

  const size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  char32_t code_point = first & (0x7Fu >> length);
  bool valid = first >= 0xC0 && first < 0xF8;  // neither a continuation nor longer than four bytes
  for (size_t i = 1; i < length; ++i) {
    valid &= (byte(position + i) & 0xC0) == 0x80;
    code_point = code_point << 6 | (byte(position + i) & 0x3F);
  }
  constexpr char32_t smallest[] = {
      0, 0, 0x80, 0x800, 0x10000};  // by length: what a shorter form can't hold
  valid = valid && code_point >= smallest[length] && code_point <= 0x10FFFF &&
          (code_point < 0xD800 || code_point > 0xDFFF);
  check(ErrorKind::bad_input,
        valid,
        "{}: not UTF-8 at byte {} (0x{:02x}); the tokenizer \"bytes\" takes any file",
        source,
        position,
        first);
  position += length;
  return code_point;
}

void append_utf8(std::string& text, char32_t c) {
  const auto put = [&](char32_t byte) { text += static_cast<char>(byte); };
  const auto continuation = [&](int shift) { put(0x80 | (c >> shift & 0x3F)); };
  if (c < 0x80)
    return put(c);
  if (c < 0x800)
    return put(0xC0 | c >> 6), continuation(0);
  if (c < 0x10000)
    return put(0xE0 | c >> 12), continuation(6), continuation(0);
  put(0xF0 | c >> 18), continuation(12), continuation(6), continuation(0);
}

}  // namespace sg::models

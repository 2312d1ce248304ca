// Strict UTF-8: no overlong forms, no surrogates, nothing above U+10FFFF.
#pragma once
#include <string>
#include <string_view>

namespace sg::models {

// The code point at `position`, which moves behind it. Error bad_input names `source` and the byte.
char32_t next_code_point(std::string_view text, size_t& position, const std::string& source);

void append_utf8(std::string& text, char32_t code_point);

}  // namespace sg::models

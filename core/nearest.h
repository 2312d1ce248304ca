// Which known word was meant: for messages about one that isn't known.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace sg {

// Insertions, removals and replacements that turn one text into the other; of long ones, of their
// beginnings.
size_t edits(std::string_view a, std::string_view b);

// Whether so many edits may be a slip of the hand in a word of this length.
bool is_near(size_t edits, size_t length);

// The nearest of `known`; empty where none is near.
std::string nearest(std::string_view word, const std::vector<std::string>& known);

// "; the nearest is --help", or nothing
std::string nearest_hint(std::string_view word, const std::vector<std::string>& known);

}  // namespace sg

#include "core/nearest.h"

#include <algorithm>
#include <utility>

namespace sg {

size_t edits(std::string_view a, std::string_view b) {
  constexpr size_t longest = 100;
  a = a.substr(0, longest);
  b = b.substr(0, longest);
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j)
    row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row.back();
}

bool is_near(size_t edits, size_t length) {
  return edits <= (length + 2) / 3;
}

std::string nearest(std::string_view word, const std::vector<std::string>& known) {
  std::string best;
  size_t least = word.size();
  for (const std::string& candidate : known) {
    const size_t distance = edits(word, candidate);
    if (!is_near(distance, word.size()) || distance >= least)
      continue;
    least = distance;
    best = candidate;
  }
  return best;
}

std::string nearest_hint(std::string_view word, const std::vector<std::string>& known) {
  const std::string found = nearest(word, known);
  return found.empty() ? found : "; the nearest is " + found;
}

}  // namespace sg

#include "core/ledger.h"

#include <algorithm>

#include "core/error.h"

namespace sg {
namespace {
thread_local Category category_of_thread = Category::activations;
}

const char* name_of(Category category) {
  constexpr const char* names[category_count] = {"parameters",
                                                 "gradients",
                                                 "optimizer",
                                                 "accumulation",
                                                 "buckets",
                                                 "live",
                                                 "activations",
                                                 "communication",
                                                 "workspace",
                                                 "data"};
  return names[static_cast<int>(category)];
}

void Ledger::add(Category category, uint64_t bytes) {
  const auto i = static_cast<size_t>(category);
  held_[i] += bytes;
  total_ += bytes;
  peak_[i] = std::max(peak_[i], held_[i]);
  total_peak_ = std::max(total_peak_, total_);
}

void Ledger::remove(Category category, uint64_t bytes) {
  const auto i = static_cast<size_t>(category);
  invariant(held_[i] >= bytes,
            "ledger: {} holds {} bytes, {} are returned",
            name_of(category),
            held_[i],
            bytes);
  held_[i] -= bytes;
  total_ -= bytes;
}

void Ledger::reset_peaks() {
  peak_ = held_;
  total_peak_ = total_;
  setup_peak_ = 0;
}

void Ledger::end_setup() {
  const uint64_t peak = total_peak_;
  reset_peaks();
  setup_peak_ = peak;
}

std::string Ledger::summary() const {
  std::string text;
  for (int c = 0; c < category_count; ++c) {
    const auto category = static_cast<Category>(c);
    if (held(category) == 0)
      continue;
    text += fmt::format(
        "{}{} {}", text.empty() ? "" : "  ", name_of(category), format_bytes(held(category)));
  }
  return text.empty() ? "nothing" : text;
}

Category current_category() {
  return category_of_thread;
}
CategoryScope::CategoryScope(Category category) : previous_(category_of_thread) {
  category_of_thread = category;
}
CategoryScope::~CategoryScope() {
  category_of_thread = previous_;
}

}  // namespace sg

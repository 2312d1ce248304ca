// The memory ledger: bytes held per category, as asked for (alignment gaps are the pool's own
// business).
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <string>

namespace sg {

enum class Category : uint8_t {
  parameters,
  gradients,
  optimizer,
  accumulation,  // the model states
  buckets,
  live,
  activations,
  communication,
  workspace,
  data
};
inline constexpr int category_count = 10;
const char* name_of(Category category);

// What one pool holds and has held at most. Not synchronised: its pool guards it.
class Ledger {
 public:
  void add(Category category, uint64_t bytes);
  void remove(Category category, uint64_t bytes);  // more than is held is a Bug
  void reset_peaks();                              // peaks start again from what is held
  void end_setup();  // what was needed until now is kept apart, then peaks start again

  uint64_t held(Category category) const { return held_[static_cast<size_t>(category)]; }
  uint64_t peak(Category category) const { return peak_[static_cast<size_t>(category)]; }
  uint64_t total() const { return total_; }
  uint64_t total_peak() const { return total_peak_; }  // peak of the sum, not the sum of peaks
  uint64_t setup_peak() const { return setup_peak_; }  // total_peak as end_setup found it
  uint64_t needed() const {
    return std::max(setup_peak_, total_peak_);
  }  // the least capacity that is enough

  std::string summary()
      const;  // "parameters 0.38 GiB  gradients 0.21 GiB": what is held, empty categories left out

 private:
  std::array<uint64_t, category_count> held_{}, peak_{};
  uint64_t total_ = 0, total_peak_ = 0, setup_peak_ = 0;
};

// Storage created on this thread while a scope lives is booked under its category; the default is
// `activations`.
Category current_category();
class CategoryScope {
 public:
  explicit CategoryScope(Category category);
  ~CategoryScope();
  CategoryScope(const CategoryScope&) = delete;
  CategoryScope& operator=(const CategoryScope&) = delete;

 private:
  Category previous_;
};

}  // namespace sg

// Shapes and strides: up to max_rank numbers, without allocation.
#pragma once
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "core/error.h"
#include "kernels/view.h"

namespace sg {

class Dims {
 public:
  Dims() = default;
  Dims(std::initializer_list<int64_t> values) : Dims(std::span(values.begin(), values.size())) {}
  explicit Dims(std::span<const int64_t> values);

  int rank() const { return rank_; }
  bool empty() const { return rank_ == 0; }
  // Negative d counts from the end; out of range is a usage error.
  int64_t operator[](int d) const { return values_[static_cast<size_t>(wrap(d))]; }
  void set(int d, int64_t value) { values_[static_cast<size_t>(wrap(d))] = value; }
  int wrap(int d) const {
    const int wrapped = d < 0 ? d + rank_ : d;
    if (wrapped < 0 || wrapped >= rank_) [[unlikely]]
      out_of_range(d);
    return wrapped;
  }

  const int64_t* begin() const { return values_.data(); }
  const int64_t* end() const { return values_.data() + rank_; }

  void push_back(int64_t value);
  void insert(int d, int64_t value);  // before dimension d, 0 ≤ d ≤ rank
  void erase(int d);

  friend bool operator==(const Dims& a, const Dims& b) {
    return a.rank_ == b.rank_ && std::equal(a.begin(), a.end(), b.begin());
  }

 private:
  [[noreturn]] void out_of_range(int d) const;
  int rank_ = 0;
  std::array<int64_t, max_rank> values_{};
};

using Shape = Dims;
using Strides = Dims;

// Product of the sizes; sizes are not negative and the product of those that aren't 0 fits 63 bits,
// so that strides do too; else a usage error.
int64_t numel(const Shape& shape);

// (…, n) → (rows, n): the same elements as a matrix, with all its rows where n is 0. Rank 1 at
// least.
Shape rows_of(const Shape& shape);

// Row-major strides without holes.
Strides dense_strides(const Shape& shape);

// The shape both broadcast to by NumPy's rule; `op` names the caller in the error.
Shape broadcast(const Shape& a, const Shape& b, const char* op);

std::string to_string(const Dims& dims);  // "(8, 64)"

}  // namespace sg

template <>
struct fmt::formatter<sg::Dims> : fmt::formatter<std::string> {
  template <class Context>
  auto format(const sg::Dims& dims, Context& context) const {
    return fmt::formatter<std::string>::format(sg::to_string(dims), context);
  }
};

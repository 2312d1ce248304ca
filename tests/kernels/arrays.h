// Arrays of any dtype for kernel tests: filled from a seed, read back as f64.
#pragma once
#include <cstring>
#include <memory>
#include <ostream>
#include <random>
#include <vector>

#include "kernels/cpu/runtime/parallel.h"
#include "kernels/table.h"

namespace sg {
inline void PrintTo(DType type, std::ostream* out) {
  *out << name_of(type);
}  // in the names of tests
}  // namespace sg

namespace sg::test {

inline double read(const void* data, DType type, int64_t i) {
  switch (type) {
    case DType::f32: return static_cast<const float*>(data)[i];
    case DType::f64: return static_cast<const double*>(data)[i];
    case DType::f16: return static_cast<float>(static_cast<const f16*>(data)[i]);
    case DType::bf16: return static_cast<float>(static_cast<const bf16*>(data)[i]);
    case DType::i32: return static_cast<const int32_t*>(data)[i];
    case DType::i64: return static_cast<double>(static_cast<const int64_t*>(data)[i]);
    default: return static_cast<const uint8_t*>(data)[i];
  }
}

inline void write(void* data, DType type, int64_t i, double x) {
  switch (type) {
    case DType::f32: static_cast<float*>(data)[i] = static_cast<float>(x); return;
    case DType::f64: static_cast<double*>(data)[i] = x; return;
    case DType::f16: static_cast<f16*>(data)[i] = f16(static_cast<float>(x)); return;
    case DType::bf16: static_cast<bf16*>(data)[i] = bf16(static_cast<float>(x)); return;
    case DType::i32: static_cast<int32_t*>(data)[i] = static_cast<int32_t>(x); return;
    case DType::i64: static_cast<int64_t*>(data)[i] = static_cast<int64_t>(x); return;
    default: static_cast<uint8_t*>(data)[i] = static_cast<uint8_t>(x); return;
  }
}

// A tensor in memory; dimensions lie in the order that `layout` lists them, outermost first
// (default: row-major), with `gap` unused elements after the innermost.
class Array {
 public:
  Array(DType type,
        std::vector<int64_t> shape,
        std::vector<int> layout = {},
        int64_t gap = 0,
        int64_t shift = 0) {
    view_.dtype = type;
    view_.rank = static_cast<int>(shape.size());
    int64_t stride = 1;
    for (int d = view_.rank - 1; d >= 0; --d) {
      const int at = layout.empty() ? d : layout[d];
      view_.shape[at] = shape[at];
      view_.strides[at] = stride;
      stride = stride * shape[at] + (d == view_.rank - 1 ? gap : 0);
    }
    bytes_.resize(static_cast<size_t>(stride) * size_of(type) + 64);
    view_.data = bytes_.data() + shift * static_cast<int64_t>(size_of(type));
  }
  Array(Array&& other) noexcept = default;

  Array& random(uint32_t seed, double scale = 1) {
    std::mt19937 engine(seed);
    std::normal_distribution<double> normal(0, scale);
    for (int64_t i = 0, n = elements(); i < n; ++i)
      write(view_.data, view_.dtype, i, normal(engine));
    return *this;
  }
  Array& fill(double x) {
    for (int64_t i = 0, n = elements(); i < n; ++i)
      write(view_.data, view_.dtype, i, x);
    return *this;
  }

  const View& view() const { return view_; }
  // Of logical element i in row-major order of the shape.
  int64_t offset(int64_t i) const {
    int64_t at = 0;
    for (int d = view_.rank - 1; d >= 0; i /= view_.shape[d--])
      at += i % view_.shape[d] * view_.strides[d];
    return at;
  }
  double operator[](int64_t i) const { return read(view_.data, view_.dtype, offset(i)); }
  void set(int64_t i, double x) { write(view_.data, view_.dtype, offset(i), x); }
  int64_t numel() const { return view_.numel(); }
  bool same_bits(const Array& other) const { return bytes_ == other.bytes_; }

 private:
  int64_t elements() const {
    return static_cast<int64_t>((bytes_.size() - 64) / size_of(view_.dtype));
  }
  std::vector<char> bytes_;
  View view_;
};

// 64-byte aligned scratch of exactly the bytes asked for, so that an overrun is caught by the
// sanitizer.
class Scratch {
 public:
  explicit Scratch(size_t bytes)
      : bytes_(bytes), data_(bytes ? std::aligned_alloc(64, (bytes + 63) / 64 * 64) : nullptr) {}
  ~Scratch() { std::free(data_); }
  Scratch(const Scratch&) = delete;
  Workspace workspace() const { return {data_, bytes_}; }

 private:
  size_t bytes_;
  void* data_;
};

inline kernels::ThreadPool& pool(int threads) {
  static std::unique_ptr<kernels::ThreadPool> pools[5];
  if (!pools[threads])
    pools[threads] = std::make_unique<kernels::ThreadPool>(threads);
  return *pools[threads];
}

// The tables that this processor can run.
inline std::vector<const KernelTable*> tables() {
  std::vector<const KernelTable*> all;
  for (const char* isa : {"avx2", "avx512"}) {
    if (const KernelTable* table = cpu_kernels(isa))
      all.push_back(table);
  }
  return all;
}

// Rounding of one stored result relative to its size.
inline double epsilon(DType type) {
  switch (type) {
    case DType::f64: return 1e-12;
    case DType::f16: return 1e-3;
    case DType::bf16: return 8e-3;
    default: return 1e-5;
  }
}

}  // namespace sg::test

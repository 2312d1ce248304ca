#include "kernels/cpu/gemm.h"

// Every instruction set gets its own Eigen: templates of one name would be merged by the linker, and an AVX2 machine
// could end up in the AVX-512 copy.
#define SG_JOIN_(a, b) a##b
#define SG_JOIN(a, b) SG_JOIN_(a, b)
#define Eigen SG_JOIN(eigen_, SG_ISA)
#define EIGEN_DONT_PARALLELIZE
#define EIGEN_GEMM_TO_COEFFBASED_THRESHOLD 0  // its path for tiny products has bits that depend on alignment
#include <Eigen/Core>

#include "kernels/cpu/vec.h"

namespace sg::kernels::SG_ISA {
namespace {

template <class T>
using RowMajor =
    Eigen::Map<const Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>, 0, Eigen::OuterStride<>>;

template <class T>
RowMajor<T> stored(const Operand& x, int64_t rows, int64_t columns) {
  return {static_cast<const T*>(x.data), x.transposed ? columns : rows, x.transposed ? rows : columns,
          Eigen::OuterStride<>(x.ld)};
}

template <class T>
void gemm_eigen(const Product& p) {
  const auto a = stored<T>(p.a, p.m, p.k), b = stored<T>(p.b, p.k, p.n);
  Eigen::Map<Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>, 0, Eigen::OuterStride<>> c(
      static_cast<T*>(p.c), p.m, p.n, Eigen::OuterStride<>(p.ldc));
  if (!p.accumulate) c.setZero();
  if (p.a.transposed && p.b.transposed) c.noalias() += a.transpose() * b.transpose();
  else if (p.a.transposed) c.noalias() += a.transpose() * b;
  else if (p.b.transposed) c.noalias() += a * b.transpose();
  else c.noalias() += a * b;
}

template <class T>
void add_bias(const Product& p) {
  const T* bias = static_cast<const T*>(p.bias);
  for (int64_t i = 0; i < p.m; ++i) {
    T* row = static_cast<T*>(p.c) + i * p.ldc;
    for (int64_t j = 0; j < p.n; ++j) row[j] += bias[j];
  }
}

// k = 0: nothing to add up.
template <class T>
void clear(const Product& p) {
  for (int64_t i = 0; i < p.m; ++i) {
    T* row = static_cast<T*>(p.c) + i * p.ldc;
    for (int64_t j = 0; j < p.n; ++j) row[j] = T(0);
  }
}

// 16-bit without a 16-bit product: blocks are widened to f32.

constexpr int64_t depth = 512;  // of k, in one block

// x(rows, columns) as it is stored, rows ld apart, to dense f32.
template <class T>
void widen(const T* x, int64_t ld, int64_t rows, int64_t columns, float* out) {
  for (int64_t i = 0; i < rows; ++i) {
    for_lanes<Vec>(columns,
                   [&](int64_t j, auto part) { store(out + i * columns + j, load(x + i * ld + j, part), part); });
  }
}

// The part [k, k + size) of an operand's inner dimension, widened.
template <class T>
Operand widen_block(const Operand& x, int64_t outer, bool inner_is_stored_last, int64_t k, int64_t size, float* out) {
  const T* data = static_cast<const T*>(x.data);
  if (inner_is_stored_last) widen(data + k, x.ld, outer, size, out);
  else widen(data + k * x.ld, x.ld, size, outer, out);
  return {out, inner_is_stored_last ? size : outer, x.transposed};
}

template <class C>
size_t widened_floats(const Product& p) {
  const int64_t k = p.k < depth ? p.k : depth;
  return static_cast<size_t>((p.m + p.n) * k + (std::is_same_v<C, float> ? 0 : p.m * p.n));
}

template <class T, class C>
void gemm_widened(const Product& p, float* scratch) {
  const int64_t block = p.k < depth ? p.k : depth;
  float* const a = scratch;
  float* const b = a + p.m * block;
  Product wide = p;
  wide.bias = nullptr;
  if constexpr (!std::is_same_v<C, float>) {
    wide.c = b + p.n * block;
    wide.ldc = p.n;
    if (p.accumulate) widen(static_cast<const C*>(p.c), p.ldc, p.m, p.n, static_cast<float*>(wide.c));
  }
  for (int64_t k = 0; k < p.k || k == 0; k += depth) {
    wide.k = p.k - k < depth ? p.k - k : depth;
    wide.a = widen_block<T>(p.a, p.m, !p.a.transposed, k, wide.k, a);
    wide.b = widen_block<T>(p.b, p.n, p.b.transposed, k, wide.k, b);
    wide.accumulate = p.accumulate || k > 0;
    gemm<float>(wide, nullptr);
  }
  if (std::is_same_v<C, float> && !p.bias) return;
  for (int64_t i = 0; i < p.m; ++i) {
    const float* sum = static_cast<const float*>(wide.c) + i * wide.ldc;
    C* row = static_cast<C*>(p.c) + i * p.ldc;
    for_lanes<Vec>(p.n, [&](int64_t j, auto part) {
      Vec x = load(sum + j, part);
      if (p.bias) x = x + load(static_cast<const C*>(p.bias) + j, part);
      store(row + j, x, part);
    });
  }
}

// The AVX2 table doesn't use what an AVX2 machine wouldn't have.
template <class T>
bool multiplied_natively() {
#ifdef SG_ISA_avx512
  if constexpr (std::is_same_v<T, bf16>) return onednn::available() && onednn::multiplies_bf16();
#endif
  return false;
}

}  // namespace

template <>
void gemm<float>(const Product& p, void*) {
  if (p.m == 0 || p.n == 0) return;
  if (p.k == 0 && !p.accumulate) clear<float>(p);
  if (p.k > 0) onednn::available() ? onednn::gemm_f32(p) : gemm_eigen<float>(p);
  if (p.bias) add_bias<float>(p);
}

template <>
void gemm<double>(const Product& p, void*) {
  if (p.m == 0 || p.n == 0) return;
  gemm_eigen<double>(p);
  if (p.bias) add_bias<double>(p);
}

template <class T, class C>
void gemm(const Product& p, void* scratch) {
  if (p.m == 0 || p.n == 0) return;
  if (p.k > 0 && multiplied_natively<T>()) return onednn::gemm_bf16(p, std::is_same_v<C, float>, scratch);
  gemm_widened<T, C>(p, static_cast<float*>(scratch));
}

template <class T, class C>
size_t gemm_scratch(const Product& p) {
  if constexpr (sizeof(T) > 2) return 0;
  else if (p.m == 0 || p.n == 0) return 0;
  else if (p.k > 0 && multiplied_natively<T>()) return onednn::bf16_scratch(p, std::is_same_v<C, float>);
  else return widened_floats<C>(p) * sizeof(float);
}

template size_t gemm_scratch<float, float>(const Product&);
template size_t gemm_scratch<double, double>(const Product&);
#define SG_GEMM_16(T, C)                           \
  template void gemm<T, C>(const Product&, void*); \
  template size_t gemm_scratch<T, C>(const Product&);
SG_GEMM_16(f16, f16)
SG_GEMM_16(f16, float)
SG_GEMM_16(bf16, bf16)
SG_GEMM_16(bf16, float)
#undef SG_GEMM_16

}  // namespace sg::kernels::SG_ISA

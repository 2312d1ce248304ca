#include "kernels/cpu/gemm.h"

#include "kernels/cpu/panel.h"

#ifndef SG_ONEDNN
// Every instruction set gets its own Eigen: templates of one name would be merged by the linker,
// and an AVX2 machine could end up in the AVX-512 copy. Its path for tiny products, whose bits
// depend on addresses, is never taken.
#define SG_JOIN_(a, b) a##b
#define SG_JOIN(a, b) SG_JOIN_(a, b)
#define Eigen SG_JOIN(eigen_, SG_ISA)
#define EIGEN_DONT_PARALLELIZE
#define EIGEN_GEMM_TO_COEFFBASED_THRESHOLD 0
#include <Eigen/Core>
#endif

namespace sg::kernels::SG_ISA {
namespace {

// f32 is the library's: oneDNN, or Eigen in a build without it.
#ifdef SG_ONEDNN

// oneDNN multiplies aᵀ·b slowest, most of all where the columns of a tile lie far apart. Turning a
// first costs a few hundredths of the product; but where b's rows are further apart than a's, in a
// page each, nothing is won.
constexpr int64_t least_turned_columns = 256, page = 4096 / sizeof(float);
bool turns(const Product& p) {
  return p.a.transposed && !p.b.transposed && p.n >= least_turned_columns &&
         p.b.ld <= (p.a.ld > page ? p.a.ld : page);
}

// A row of the turned a, (m, k): not a multiple of 4 KiB, which would put all of a column into one
// set of the cache.
int64_t turned_ld(const Product& p) {
  return round_up(p.k, 16) + 16;
}

size_t scratch_f32(const Product& p) {
  return turns(p) ? static_cast<size_t>(p.m * turned_ld(p)) * sizeof(float) : 0;
}

void gemm_f32(const Product& p, void* scratch) {
  if (!turns(p))
    return onednn::gemm_f32(p);
  turn(static_cast<const float*>(p.a.data),
       p.a.ld,
       p.k,
       p.m,
       1.0f,
       static_cast<float*>(scratch),
       turned_ld(p));
  Product turned = p;
  turned.a = {scratch, turned_ld(p), false};
  onednn::gemm_f32(turned);
}
#else
using RowMajor = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

Eigen::Map<const RowMajor, 0, Eigen::OuterStride<>> stored(const Operand& x,
                                                           int64_t rows,
                                                           int64_t columns) {
  return {static_cast<const float*>(x.data),
          x.transposed ? columns : rows,
          x.transposed ? rows : columns,
          Eigen::OuterStride<>(x.ld)};
}

size_t scratch_f32(const Product&) {
  return 0;
}

void gemm_f32(const Product& p, void*) {
  const auto a = stored(p.a, p.m, p.k), b = stored(p.b, p.k, p.n);
  Eigen::Map<RowMajor, 0, Eigen::OuterStride<>> c(
      static_cast<float*>(p.c), p.m, p.n, Eigen::OuterStride<>(p.ldc));
  if (!p.accumulate)
    c.setZero();
  if (p.a.transposed && p.b.transposed)
    c.noalias() += a.transpose() * b.transpose();
  else if (p.a.transposed)
    c.noalias() += a.transpose() * b;
  else if (p.b.transposed)
    c.noalias() += a * b.transpose();
  else
    c.noalias() += a * b;
}
#endif

// What the library doesn't multiply, after Goto and van de Geijn, "Anatomy of high-performance
// matrix multiplication", 2008: blocks of a are copied to strips of six rows, blocks of b to panels
// of columns, widened on the way, and multiplied from there. An element's sum runs over k in order,
// so its bits depend neither on addresses nor on the other sizes.

constexpr int64_t strip_rows = 6, panel_width = 64, block_depth = 256;

SG_INLINE float widen(float x) {
  return x;
}
SG_INLINE double widen(double x) {
  return x;
}
SG_INLINE float widen(bf16 x) {
  return static_cast<float>(x);
}
SG_INLINE float widen(f16 x) {
  return _cvtsh_ss(x.bits);
}

// Rows of a at depths k … k + depth − 1: out (strips, depth, strip_rows).
template <class T>
void copy_strips(const Operand& a, int64_t m, int64_t k, int64_t depth, Statistic<T>* out) {
  const int64_t row = a.transposed ? 1 : a.ld, column = a.transposed ? a.ld : 1;
  const T* const from = static_cast<const T*>(a.data) + k * column;
  for (int64_t i = 0; i < m; i += strip_rows, out += depth * strip_rows) {
    const int64_t rows = m - i < strip_rows ? m - i : strip_rows;
    for (int64_t p = 0; p < depth; ++p) {
      for (int64_t r = 0; r < rows; ++r)
        out[p * strip_rows + r] = widen(from[(i + r) * row + p * column]);
    }
  }
}

// Columns j … j + n − 1 of b at these depths: out (depth, padded), zeros behind n.
template <class T>
void copy_panel(const Operand& b,
                int64_t k,
                int64_t depth,
                int64_t j,
                int64_t n,
                int64_t padded,
                Statistic<T>* out) {
  const int64_t row = b.transposed ? 1 : b.ld, column = b.transposed ? b.ld : 1;
  const T* from = static_cast<const T*>(b.data) + k * row + j * column;
  for (int64_t p = 0; p < depth; ++p, from += row, out += padded) {
    if (b.transposed) {
      for (int64_t c = 0; c < n; ++c)
        out[c] = widen(from[c * column]);
    } else {
      for_lanes<Lanes<T>>(
          n, [&](int64_t c, auto part) { store(out + c, load(from + c, part), part); });
    }
    for (int64_t c = n; c < padded; ++c)
      out[c] = 0;
  }
}

// A strip by the last columns, fewer than panel_step.
template <class W>
void multiply_edge(int64_t rows,
                   int64_t columns,
                   int64_t depth,
                   const W* strip,
                   const W* panel,
                   int64_t padded,
                   W* c,
                   int64_t ldc,
                   bool accumulate) {
  W edge[strip_rows * panel_step];
  for (int64_t i = 0; i < rows * panel_step; ++i) {
    const int64_t r = i / panel_step, j = i % panel_step;
    edge[i] = accumulate && j < columns ? c[r * ldc + j] : W(0);
  }
  panel_product<W>(
      rows, panel_step, depth, strip, 1, strip_rows, panel, padded, edge, panel_step, true);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t j = 0; j < columns; ++j)
      c[r * ldc + j] = edge[r * panel_step + j];
  }
}

// c (m, n), of the wide type, from operands of type T; without bias.
template <class T>
void multiply(
    const Product& p, Statistic<T>* c, int64_t ldc, bool accumulate, Statistic<T>* scratch) {
  for (int64_t k = 0; k < p.k; k += block_depth, accumulate = true) {
    const int64_t depth = p.k - k < block_depth ? p.k - k : block_depth;
    Statistic<T>*const panel = scratch, *const strips = scratch + panel_width * depth;
    copy_strips<T>(p.a, p.m, k, depth, strips);
    for (int64_t j = 0; j < p.n; j += panel_width) {
      const int64_t columns = p.n - j < panel_width ? p.n - j : panel_width;
      const int64_t whole = columns / panel_step * panel_step,
                    padded = round_up(columns, panel_step);
      copy_panel<T>(p.b, k, depth, j, columns, padded, panel);
      for (int64_t i = 0; i < p.m; i += strip_rows) {
        const int64_t rows = p.m - i < strip_rows ? p.m - i : strip_rows;
        const Statistic<T>* const strip = strips + i * depth;
        Statistic<T>* const to = c + i * ldc + j;
        panel_product(rows, whole, depth, strip, 1, strip_rows, panel, padded, to, ldc, accumulate);
        if (whole == columns)
          continue;
        multiply_edge(rows,
                      columns - whole,
                      depth,
                      strip,
                      panel + whole,
                      padded,
                      to + whole,
                      ldc,
                      accumulate);
      }
    }
  }
}

int64_t packed_elements(const Product& p) {
  return (p.k < block_depth ? p.k : block_depth) * (panel_width + round_up(p.m, strip_rows));
}

// body(to, sum, part) for the elements of c and of their sums, (m, n) each.
template <class W, class C, class F>
void for_rows(const Product& p, W* sums, int64_t ld, F&& body) {
  for (int64_t i = 0; i < p.m; ++i) {
    C* const row = static_cast<C*>(p.c) + i * p.ldc;
    for_lanes<Lanes<W>>(p.n,
                        [&](int64_t j, auto part) { body(row + j, sums + i * ld + j, j, part); });
  }
}

template <class T, class C>
void gemm_packed(const Product& p, Statistic<T>* scratch) {
  using W = Statistic<T>;
  W* sums = scratch + packed_elements(p);
  int64_t ld = p.n;
  if constexpr (std::is_same_v<C, W>)
    sums = static_cast<W*>(p.c), ld = p.ldc;
  else if (p.accumulate) {
    for_rows<W, C>(
        p, sums, ld, [](C* c, W* sum, int64_t, auto part) { store(sum, load(c, part), part); });
  }
  if (p.k == 0 && !p.accumulate) {
    for_rows<W, C>(
        p, sums, ld, [](C*, W* sum, int64_t, auto part) { store(sum, Lanes<W>(W(0)), part); });
  }
  multiply<T>(p, sums, ld, p.accumulate, scratch);
  if (std::is_same_v<C, W> && !p.bias)
    return;
  for_rows<W, C>(p, sums, ld, [&](C* c, W* sum, int64_t j, auto part) {
    Lanes<W> x = load(sum, part);
    if (p.bias)
      x = x + load(static_cast<const C*>(p.bias) + j, part);
    store(c, x, part);
  });
}

void add_bias(const Product& p) {
  for_rows<float, float>(
      p, static_cast<float*>(p.c), p.ldc, [&](float* c, float*, int64_t j, auto part) {
        store(c, load(c, part) + load(static_cast<const float*>(p.bias) + j, part), part);
      });
}

// The AVX2 table doesn't use what an AVX2 machine wouldn't have.
template <class T>
bool multiplied_by_library(const Product& p) {
#ifdef SG_ISA_avx512
  if constexpr (std::is_same_v<T, bf16>)
    return p.k > 0 && onednn::multiplies_bf16();
#endif
  return p.k > 0 && std::is_same_v<T, float>;
}

}  // namespace

template <class T, class C>
void gemm(const Product& p, void* scratch) {
  if (p.m == 0 || p.n == 0)
    return;
  if (!multiplied_by_library<T>(p))
    return gemm_packed<T, C>(p, static_cast<Statistic<T>*>(scratch));
  if constexpr (std::is_same_v<T, bf16>)
    return onednn::gemm_bf16(p, std::is_same_v<C, float>, scratch);
  gemm_f32(p, scratch);
  if (p.bias)
    add_bias(p);
}

template <class T, class C>
size_t gemm_scratch(const Product& p) {
  if (p.m == 0 || p.n == 0)
    return 0;
  if (!multiplied_by_library<T>(p)) {
    const int64_t sums = std::is_same_v<C, Statistic<T>> ? 0 : p.m * p.n;
    return static_cast<size_t>(packed_elements(p) + sums) * sizeof(Statistic<T>);
  }
  if constexpr (std::is_same_v<T, bf16>)
    return onednn::bf16_scratch(p, std::is_same_v<C, float>);
  return scratch_f32(p);
}

#define SG_GEMM(T, C)                              \
  template void gemm<T, C>(const Product&, void*); \
  template size_t gemm_scratch<T, C>(const Product&);
SG_GEMM(float, float)
SG_GEMM(double, double)
SG_GEMM(f16, f16)
SG_GEMM(f16, float)
SG_GEMM(bf16, bf16)
SG_GEMM(bf16, float)
#undef SG_GEMM

}  // namespace sg::kernels::SG_ISA

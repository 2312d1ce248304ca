// Matrix products by oneDNN on the calling thread alone. Compiled once, without instruction-set
// flags; kernels/cpu/gemm.h is what kernels call.
#pragma once
#include <cstddef>
#include <cstdint>

namespace sg::kernels {

// A dense matrix: element (i, j) is data[i·ld + j], or data[j·ld + i] where transposed.
struct Operand {
  const void* data = nullptr;
  int64_t ld = 0;
  bool transposed = false;
};

// c (m,n) = a (m,k) · b (k,n), rows of c ldc apart; accumulate adds to what c holds; bias (n), of
// c's type, is added to every row (null: none; must be null with accumulate).
struct Product {
  int64_t m = 0, n = 0, k = 0;
  Operand a, b;
  void* c = nullptr;
  int64_t ldc = 0;
  bool accumulate = false;
  const void* bias = nullptr;
};

namespace onednn {

// Whether the processor multiplies bf16 itself (AVX512_BF16 or AMX). Elsewhere oneDNN emulates,
// slower than f32. False in a build without oneDNN: the functions below must then not be called.
bool multiplies_bf16();

// a, b, c f32; bias is not looked at. m, n, k > 0.
void gemm_f32(const Product&);

// a, b bf16; c bf16, or f32 where f32_result; sums in f32, rounded once. m, n, k > 0. The primitive
// is made once per combination of sizes, layouts and options (0.3–3 ms) and kept among the latest
// 1,024. Primitives must not use the library's own scratch memory, which belongs to the thread that
// made them: `scratch` is 64-byte aligned, of bf16_scratch's size.
void gemm_bf16(const Product&, bool f32_result, void* scratch);
size_t bf16_scratch(const Product&, bool f32_result);

}  // namespace onednn
}  // namespace sg::kernels

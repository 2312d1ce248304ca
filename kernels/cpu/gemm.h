// One tile of a matrix product on the calling thread: f32 by oneDNN, or by Eigen in a build without
// it; bf16 by oneDNN where the processor multiplies it (AVX512_BF16); the others, and bf16
// elsewhere, by code of our own.
#pragma once
#include <cstddef>
#include <cstdint>

#include "kernels/cpu/runtime/gemm.h"
#include "kernels/cpu/runtime/plan.h"
#include "kernels/dtype.h"

namespace sg::kernels::SG_ISA {

// Product, with a and b of type T and c (and bias) of type C: C is T, or f32 where T is 16 bits
// wide. Any size may be 0. 16-bit products add up in f32 and are rounded once, after the bias.
// `scratch` is 64-byte aligned, of gemm_scratch's size.
template <class T, class C = T>
void gemm(const Product&, void* scratch);

// Bytes of scratch, maybe 0. Only sizes, layouts and options of the product are looked at.
template <class T, class C = T>
size_t gemm_scratch(const Product&);

}  // namespace sg::kernels::SG_ISA

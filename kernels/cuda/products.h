// Products by cuBLASLt, for kernels whose result has another type than their operands.
#pragma once
#include "kernels/table.h"

namespace sg::kernels::cuda {

// As KernelTable::matmul; out may also be f32 where a and b have 16 bits.
void multiply(
    const View& a, const View& b, const View& out, const MatmulOptions&, Workspace, StreamHandle);
// The workspace of products of these shapes and types.
size_t multiply_workspace(const View& a, const View& b, const View& out);

}  // namespace sg::kernels::cuda

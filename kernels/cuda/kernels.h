// What the files of this folder offer the table; contracts are in kernels/table.h.
#pragma once
#include "kernels/table.h"

namespace sg::kernels::cuda {

// every dtype
template <class T>
void pointwise(PointwiseOp, const View* inputs, const View& out, double scalar, StreamHandle);

// f32, f64, f16, bf16
template <class T>
void layernorm(const View& x,
               const View& residual,
               const View& gain,
               const View& bias,
               float eps,
               const View& sum,
               const View& y,
               const View& mean,
               const View& rstd,
               StreamHandle);

// f32, f16, bf16, by the views' dtype
void matmul(
    const View& a, const View& b, const View& out, const MatmulOptions&, Workspace, StreamHandle);
size_t matmul_workspace(const View& a, const View& b, const View& out, int threads);

}  // namespace sg::kernels::cuda

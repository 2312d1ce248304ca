// The kernels of one instruction set: each entry of table.h, declared once in its namespace. A kernel is a template
// over the stored type; the file that defines it instantiates it for the dtypes it serves.
#pragma once
#include "kernels/table.h"

namespace sg::kernels::SG_ISA {

// memory.cpp
void fill(const View& out, double value, StreamHandle);
void copy(const View& in, const View& out, StreamHandle);

// pointwise.cpp
template <class T>
void pointwise(PointwiseOp, const View* inputs, const View& out, double scalar, StreamHandle);

// matmul.cpp
template <class T>
void matmul(const View& a, const View& b, const View& out, const MatmulOptions&, Workspace, StreamHandle);
size_t matmul_workspace(const View& a, const View& b, const View& out, int threads);

// attention.cpp, attention_backward.cpp
template <class T>
void attention(const View& q, const View& k, const View& v, const View& out, const View& lse, const AttentionOptions&,
               Workspace, StreamHandle);
template <class T>
void attention_backward(const View& q, const View& k, const View& v, const View& out, const View& lse,
                        const View& d_out, const View& dq, const View& dk, const View& dv, const AttentionOptions&,
                        Workspace, StreamHandle);
size_t attention_workspace(const View& q, const View& k, bool backward, int threads);

// Instantiates a kernel template for all float types.
#define SG_FOR_FLOATS(kernel, ...)           \
  template void kernel<float>(__VA_ARGS__);  \
  template void kernel<double>(__VA_ARGS__); \
  template void kernel<f16>(__VA_ARGS__);    \
  template void kernel<bf16>(__VA_ARGS__);

}  // namespace sg::kernels::SG_ISA

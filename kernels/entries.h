// The kernels of one backend or instruction set: each entry of table.h, declared once in its
// namespace (SG_ISA). A kernel is a template over the stored type; the file of cpu/ or cuda/ that
// defines it instantiates it for the dtypes it serves. The files are named below; cuda/ has the
// same names.
#pragma once
#include "kernels/table.h"

namespace sg::kernels::SG_ISA {

// memory.cpp
void fill(const View& out, double value, StreamHandle);
void copy(const View& in, const View& out, StreamHandle);

// dropout.cpp
void random_uniform(const View& out, RandomKey, float low, float high, StreamHandle);
void random_normal(const View& out, RandomKey, float mean, float deviation, StreamHandle);
template <class T>
void dropout(const View& x, const View& y, float probability, RandomKey, StreamHandle);

// pointwise.cpp
template <class T>
void pointwise(PointwiseOp, const View* inputs, const View& out, double scalar, StreamHandle);

// reduce.cpp
template <class T>
void reduce(ReduceOp, const View& x, const View& out, StreamHandle);
template <class T>
void argmax(const View& x, const View& indices, StreamHandle);

// indices.cpp
template <class T>
void find_outside(const View& ids, int64_t low, int64_t high, const View& first, StreamHandle);

// embedding.cpp
template <class T>
void embedding(const View& table, const View& ids, const View& out, StreamHandle);
template <class T>
void embedding_backward(
    const View& ids, const View& dy, const View& d_table, bool accumulate, Workspace, StreamHandle);
size_t embedding_backward_workspace(const View& ids, const View& d_table, int threads);

// nn.cpp
template <class T>
void softmax(const View& x, const View& y, StreamHandle);
template <class T>
void softmax_backward(const View& y, const View& dy, const View& dx, StreamHandle);
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
template <class T>
void layernorm_backward(const View& dy,
                        const View& d_sum,
                        const View& x,
                        const View& gain,
                        const View& mean,
                        const View& rstd,
                        const View& dx,
                        const View& d_gain,
                        const View& d_bias,
                        Workspace,
                        StreamHandle);
size_t layernorm_backward_workspace(const View& x, int threads);
template <class T>
void rmsnorm(const View& x,
             const View& residual,
             const View& gain,
             float eps,
             const View& sum,
             const View& y,
             const View& rstd,
             StreamHandle);
template <class T>
void rmsnorm_backward(const View& dy,
                      const View& d_sum,
                      const View& x,
                      const View& gain,
                      const View& rstd,
                      const View& dx,
                      const View& d_gain,
                      Workspace,
                      StreamHandle);
template <class T>
void activation_backward(PointwiseOp f,
                         const View& x,
                         const View& dy,
                         const View& dx,
                         const View& d_bias,
                         Workspace,
                         StreamHandle);
template <class T>
void column_sum(const View& dy, const View& d_bias, Workspace, StreamHandle);
size_t column_sum_workspace(const View& dy, int threads);

// rope.cpp
template <class T>
void rope(const View& x,
          const View& positions,
          const RopeOptions&,
          bool inverse,
          const View& y,
          StreamHandle);

// update.cpp; G is the gradient's type.
template <class G>
void adam(const View& master,
          const View& gradient,
          const View& moment1,
          const View& moment2,
          const View& parameter,
          const AdamOptions&,
          StreamHandle);
template <class G>
void sgd(const View& master,
         const View& gradient,
         const View& momentum,
         const View& parameter,
         const SgdOptions&,
         StreamHandle);
template <class G>
void lion(const View& master,
          const View& gradient,
          const View& momentum,
          const View& parameter,
          const LionOptions&,
          StreamHandle);
template <class T>
void accumulate(const View& x, const View& acc, StreamHandle);
template <class T>
void sum_squares(const View& x, const View& partial, StreamHandle);
template <class T>
void find_nonfinite(const View& x, const View& first, StreamHandle);
template <class T>
void tree_sum(const View* inputs,
              int n,
              const View* outs,
              int n_outs,
              float scale,
              const View& first,
              StreamHandle);

// matmul.cpp
template <class T>
void matmul(
    const View& a, const View& b, const View& out, const MatmulOptions&, Workspace, StreamHandle);
size_t matmul_workspace(const View& a, const View& b, const View& out, int threads);

// attention.cpp, attention_backward.cpp
template <class T>
void attention(const View& q,
               const View& k,
               const View& v,
               const View& out,
               const View& lse,
               const AttentionOptions&,
               Workspace,
               StreamHandle);
template <class T>
void attention_backward(const View& q,
                        const View& k,
                        const View& v,
                        const View& out,
                        const View& lse,
                        const View& d_out,
                        const View& dq,
                        const View& dk,
                        const View& dv,
                        const AttentionOptions&,
                        Workspace,
                        StreamHandle);
size_t attention_workspace(const View& q, const View& k, bool backward, int threads);

// cross_entropy.cpp, classifier.cpp
template <class T>
void cross_entropy(const View& logits,
                   const View& targets,
                   const View& losses,
                   const View& d_logits,
                   float scale,
                   StreamHandle);
template <class T>
void classifier(const View& x,
                const View& weight,
                const View& targets,
                const View& losses,
                const View& dx,
                const View& d_weight,
                float scale,
                Workspace,
                StreamHandle);
size_t classifier_workspace(const View& x, const View& weight, bool backward, int threads);

// Instantiates a kernel template: for all float types; for those that gradients have.
#define SG_FOR_FLOATS(kernel) \
  SG_FOR_GRADIENTS(kernel)    \
  template decltype(kernel<double>) kernel<double>;
#define SG_FOR_GRADIENTS(kernel)                  \
  template decltype(kernel<float>) kernel<float>; \
  template decltype(kernel<f16>) kernel<f16>;     \
  template decltype(kernel<bf16>) kernel<bf16>;

}  // namespace sg::kernels::SG_ISA

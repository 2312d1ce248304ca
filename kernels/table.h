// The kernel table: one struct of typed function pointers, filled once per backend and instruction
// set.
//
// Every entry is found under one word at every layer: kernels/{cpu,cuda}/, core/ops_*.cpp,
// autograd/ops_*.cpp. Kernels neither allocate nor validate: core has checked shapes and dtypes and
// allocated outputs and workspaces. An entry that a backend lacks for a dtype is null: core reports
// "matmul: no cuda kernel for f64", or, for entries marked [fused], computes the parts instead and
// says so once. Unless an entry says otherwise, views are dense row-major; [strided] entries take
// any strides. Statistics (means, logsumexp, losses) are f32, f64 for f64 data. 16-bit inputs are
// computed in f32 and rounded once, where stored. Results never depend on the number of threads:
// work is cut into chunks that depend on shapes alone.
#pragma once
#include <cstddef>
#include <cstdint>

#include "kernels/device.h"
#include "kernels/dtype.h"
#include "kernels/pointwise.h"
#include "kernels/random.h"
#include "kernels/rope.h"
#include "kernels/view.h"

namespace sg {

// One function pointer per dtype; null where the backend has none.
template <class F>
struct ByDType {
  F* f32 = nullptr;
  F* f64 = nullptr;
  F* f16 = nullptr;
  F* bf16 = nullptr;
  F* i32 = nullptr;
  F* i64 = nullptr;
  F* u8 = nullptr;
  F* boolean = nullptr;
  F* operator[](DType t) const {
    F* const all[dtype_count] = {f32, f64, f16, bf16, i32, i64, u8, boolean};
    return all[static_cast<int>(t)];
  }
};

enum class ReduceOp : uint8_t { sum, mean, max, min };

struct MatmulOptions {
  bool accumulate = false;     // out += a·b; bias must then be null
  const View* bias = nullptr;  // (n), out's dtype, added to every row
};

struct AttentionOptions {
  float scale = 1;             // scores are scale · q·kᵀ
  bool causal = false;         // query i sees keys 0 … i + (S − T)
  int64_t window = 0;          // causal: the last so many of these alone; 0: all
  const View* mask = nullptr;  // [strided] (B,H,T,S), strides 0 where broadcast: boolean (true =
                               // visible) or f32 (added)
  float dropout = 0;           // probability of dropping an attention weight
  RandomKey random;            // sample = batch row; element = (h·T + t)·S + s
};

// All optimizers: `factor` multiplies the gradient first (unscale and clip in one); explicit FMAs,
// IEEE division and square root, so that any split of the arrays and any backend gives the same
// bits. `master` is f32; where parameters are 16-bit, `parameter` receives master rounded to
// nearest even, else its data is null.
struct AdamOptions {
  float lr, beta1, beta2, eps, weight_decay, factor;
  float correction1,
      correction2;  // 1 − beta1^t, 1 − beta2^t of the f32 betas above, rounded once from f64
  bool decoupled;   // AdamW: p −= lr·wd·p before the update; else Adam: g += wd·p
  bool first;       // t = 1: the moments were zero, so what they estimate is g and g² themselves
};
struct SgdOptions {
  float lr, momentum, weight_decay, factor;
  bool nesterov;
  bool first;  // the momentum buffer starts as the gradient
};
struct LionOptions {
  float lr, beta1, beta2, weight_decay, factor;
};

// Elements per partial sum of squares; a shard's boundary falls on a chunk's.
inline constexpr int64_t norm_chunk = 1024;

struct KernelTable {
  const char* name = "";  // "avx2", "avx512", "cuda"

  // ---- memory
  void (*fill)(const View& out, double value, StreamHandle) = nullptr;  // [strided] any dtype
  void (*copy)(const View& in,
               const View& out,
               StreamHandle) = nullptr;  // [strided] same shape, any two dtypes: casts
  // f32; row 0 of dim 0 is the key's first_sample; normal by Box–Muller.
  void (*random_uniform)(const View& out, RandomKey, float low, float high, StreamHandle) = nullptr;
  void (*random_normal)(const View& out, RandomKey, float mean, float deviation, StreamHandle) =
      nullptr;

  // ---- pointwise and reductions
  // [strided] 1–3 inputs broadcast to out's shape by strides 0; inputs have `out`'s dtype
  // (comparisons: boolean out; where: a boolean first input). The table is indexed by the dtype of
  // the last input, and supports() says whether the entry has the op.
  ByDType<void(PointwiseOp, const View* inputs, const View& out, double scalar, StreamHandle)>
      pointwise = {};
  // acc += x; acc has x's dtype or is f32.
  ByDType<void(const View& x, const View& acc, StreamHandle)> accumulate = {};
  // [strided] x; out has x's dtype, and size 1 at the reduced dimensions.
  ByDType<void(ReduceOp, const View& x, const View& out, StreamHandle)> reduce = {};
  // (rows, n) → (rows) i64, the first of equals.
  ByDType<void(const View& x, const View& indices, StreamHandle)> argmax = {};

  // ---- products: (…,m,k)·(…,k,n) → (…,m,n)
  // [strided] leading dims by any strides (0 = broadcast); of a matrix's two strides one is 1 (rows
  // or columns dense).
  ByDType<void(
      const View& a, const View& b, const View& out, const MatmulOptions&, Workspace, StreamHandle)>
      matmul = {};
  size_t (*matmul_workspace)(const View& a, const View& b, const View& out, int threads) = nullptr;

  // ---- indices
  // first (i64, one element): position of the first of the ids (n) i32|i64 that is outside [low,
  // high), or −1. A device may leave it in its own memory, so that checking costs no wait: whoever
  // reads the step's results reads it then.
  ByDType<void(const View& ids, int64_t low, int64_t high, const View& first, StreamHandle)>
      find_outside = {};
  // first (i64, one element): position of the first of the values x (n) that isn't finite, or −1.
  ByDType<void(const View& x, const View& first, StreamHandle)> find_nonfinite = {};

  // ---- rows
  // (v,c), (rows) i32|i64 → (rows,c)
  ByDType<void(const View& table, const View& ids, const View& out, StreamHandle)> embedding = {};
  // d_table (v,c): accumulate adds to it, else rows without a token are zeroed. Rows of equal id
  // add up in row order in f32.
  ByDType<void(const View& ids,
               const View& dy,
               const View& d_table,
               bool accumulate,
               Workspace,
               StreamHandle)>
      embedding_backward = {};
  size_t (*embedding_backward_workspace)(const View& ids,
                                         const View& d_table,
                                         int threads) = nullptr;
  // (rows, n), over n
  ByDType<void(const View& x, const View& y, StreamHandle)> softmax = {};
  ByDType<void(const View& y, const View& dy, const View& dx, StreamHandle)> softmax_backward = {};
  // (rows, n); gain, bias (n), bias.data may be null; mean, rstd (rows). residual.data null, or sum
  // = x + residual (stored, rounded) is normalised instead of x [fused].
  ByDType<void(const View& x,
               const View& residual,
               const View& gain,
               const View& bias,
               float eps,
               const View& sum,
               const View& y,
               const View& mean,
               const View& rstd,
               StreamHandle)>
      layernorm = {};
  // d_sum.data null, or dx = d_sum + the norm's own gradient (the residual path) [fused]. d_gain,
  // d_bias (n) are overwritten; either may be null. dx may be dy, here and in the two below.
  ByDType<void(const View& dy,
               const View& d_sum,
               const View& x,
               const View& gain,
               const View& mean,
               const View& rstd,
               const View& dx,
               const View& d_gain,
               const View& d_bias,
               Workspace,
               StreamHandle)>
      layernorm_backward = {};
  size_t (*layernorm_backward_workspace)(const View& x,
                                         int threads) = nullptr;  // rmsnorm_backward's too
  ByDType<void(const View& x,
               const View& residual,
               const View& gain,
               float eps,
               const View& sum,
               const View& y,
               const View& rstd,
               StreamHandle)>
      rmsnorm = {};
  ByDType<void(const View& dy,
               const View& d_sum,
               const View& x,
               const View& gain,
               const View& rstd,
               const View& dx,
               const View& d_gain,
               Workspace,
               StreamHandle)>
      rmsnorm_backward = {};
  // y = f(x) with f one of gelu, gelu_tanh, silu, relu; x (rows, n). Backward: dx = f'(x)·dy, and
  // unless d_bias.data is null d_bias (n) = column sums of dx (x already holds the bias; the matmul
  // before added it) [fused].
  ByDType<void(PointwiseOp f,
               const View& x,
               const View& dy,
               const View& dx,
               const View& d_bias,
               Workspace,
               StreamHandle)>
      activation_backward = {};
  // (rows, n) → (n), accumulated in f32
  ByDType<void(const View& dy, const View& d_bias, Workspace, StreamHandle)> column_sum = {};
  size_t (*column_sum_workspace)(const View& dy,
                                 int threads) = nullptr;  // activation_backward's too
  // Rotary embedding, pairs (i, i + d/2) as in Llama; inverse turns back. x [strided] (b,t,h,d), d
  // dense; y dense; positions (t) i64.
  ByDType<void(const View& x,
               const View& positions,
               const RopeOptions&,
               bool inverse,
               const View& y,
               StreamHandle)>
      rope = {};
  // Its own backward; dimension 0 is the sample.
  ByDType<void(const View& x, const View& y, float probability, RandomKey, StreamHandle)> dropout =
      {};

  // ---- attention
  // q (b,h,t,d), k, v (b,hk,s,d), out (b,h,t,d) [strided, d dense], lse (b,h,t); h is a multiple of
  // hk.
  ByDType<void(const View& q,
               const View& k,
               const View& v,
               const View& out,
               const View& lse,
               const AttentionOptions&,
               Workspace,
               StreamHandle)>
      attention = {};
  ByDType<void(const View& q,
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
               StreamHandle)>
      attention_backward = {};
  size_t (*attention_workspace)(const View& q, const View& k, bool backward, int threads) = nullptr;

  // ---- loss
  // logits (rows, n), targets (rows) i32|i64, −1 is ignored (loss 0); losses (rows). Unless
  // d_logits.data is null it receives scale · (softmax − onehot); it may be logits itself.
  ByDType<void(const View& logits,
               const View& targets,
               const View& losses,
               const View& d_logits,
               float scale,
               StreamHandle)>
      cross_entropy = {};
  // Classifier fused with the loss, by chunks of rows so that no (rows, v) logits exist: x
  // (rows,c), weight (v,c). Unless dx.data is null also dx (rows,c) and d_weight (v,c) of scale · Σ
  // losses; d_weight adds up in f32, rounded once.
  ByDType<void(const View& x,
               const View& weight,
               const View& targets,
               const View& losses,
               const View& dx,
               const View& d_weight,
               float scale,
               Workspace,
               StreamHandle)>
      classifier = {};
  size_t (*classifier_workspace)(const View& x,
                                 const View& weight,
                                 bool backward,
                                 int threads) = nullptr;

  // ---- optimizer
  // One-dimensional. gradient: f32, f16 or bf16 (indexed by it); moments f32.
  ByDType<void(const View& master,
               const View& gradient,
               const View& moment1,
               const View& moment2,
               const View& parameter,
               const AdamOptions&,
               StreamHandle)>
      adam = {};
  ByDType<void(const View& master,
               const View& gradient,
               const View& momentum,
               const View& parameter,
               const SgdOptions&,
               StreamHandle)>
      sgd = {};
  ByDType<void(const View& master,
               const View& gradient,
               const View& momentum,
               const View& parameter,
               const LionOptions&,
               StreamHandle)>
      lion = {};
  // partial[i] (f64) = Σ x² of elements 1024·i … 1024·i+1023: element j of a chunk adds to lane j
  // mod 8, the lanes add up as a tree of adjacent pairs. Not finite exactly when an element isn't.
  ByDType<void(const View& x, const View& partial, StreamHandle)> sum_squares = {};
  // round(scale · tree(inputs)), to each of n_outs equal places: f32 sum of n equal-length arrays
  // in rank order, adjacent pairs, an odd last one carried up; by the inputs' dtype, the outs have
  // that dtype or f32. An out may be an input. Unless first.data is null, first (i64, two elements)
  // is the position of the first sum that isn't finite, or −1, and the first input that isn't
  // finite there, or −1.
  ByDType<void(const View* inputs,
               int n,
               const View* outs,
               int n_outs,
               float scale,
               const View& first,
               StreamHandle)>
      tree_sum = {};
};

// The table of the best instruction set this processor has, or of the one named by the environment
// variable SG_ISA
// ("avx2", "avx512"); null if it is unknown or the processor lacks it.
const KernelTable* cpu_kernels(const char* isa = nullptr);

// What computes the CPU's products of a dtype, "oneDNN 2.6.0" or "Eigen 3.4.0": a part of what bits
// depend on, as is whether 16-bit values are multiplied as such or after conversion to f32, which
// it says.
const char* products_library(DType dtype = DType::f32);

// Null in a build without the CUDA toolkit.
const KernelTable* cuda_kernels();

}  // namespace sg

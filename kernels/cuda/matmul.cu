// Products by cuBLASLt: f32 sums, bias as its epilogue, one strided batch a call. The algorithm
// depends on shapes and alignment alone, and splits of k add up in the workspace in f32 in a fixed
// order: the same call gives the same bits.
#include <algorithm>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>

#include "kernels/cuda/cublaslt.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.h"

namespace sg::kernels::cuda {
namespace {

constexpr size_t workspace_bytes =
    size_t(32) << 20;  // what NVIDIA recommends for Hopper; smaller GPUs use less of it

void check(cublasStatus_t status, const char* step) {
  if (status == CUBLAS_STATUS_SUCCESS)
    return;
  throw std::runtime_error(std::string("matmul: ") + step + ": " +
                           cublaslt().cublasLtGetStatusString(status));
}

// One handle per device, kept for the life of the process.
cublasLtHandle_t handle() {
  static std::mutex mutex;
  static std::map<int, cublasLtHandle_t> handles;
  int device = 0;
  cuda::check(cudaGetDevice(&device), "matmul");
  const std::lock_guard lock(mutex);
  cublasLtHandle_t& h = handles[device];
  if (!h)
    check(cublaslt().cublasLtCreate(&h), "cublasLtCreate");
  return h;
}

cudaDataType_t data_type(DType t) {
  return t == DType::f16 ? CUDA_R_16F : t == DType::bf16 ? CUDA_R_16BF : CUDA_R_32F;
}

// cuBLASLt's descriptors, destroyed with their scope.
struct Layout {
  cublasLtMatrixLayout_t raw = nullptr;
  Layout(DType type,
         int64_t rows,
         int64_t columns,
         int64_t leading,
         int64_t batch,
         int64_t batch_stride) {
    check(cublaslt().cublasLtMatrixLayoutCreate(&raw, data_type(type), rows, columns, leading),
          "layout");
    set(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<int32_t>(batch));
    set(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, batch_stride);
  }
  ~Layout() { cublaslt().cublasLtMatrixLayoutDestroy(raw); }
  Layout(const Layout&) = delete;
  template <class T>
  void set(cublasLtMatrixLayoutAttribute_t attribute, T value) {
    check(cublaslt().cublasLtMatrixLayoutSetAttribute(raw, attribute, &value, sizeof value),
          "layout");
  }
};

struct Product {
  cublasLtMatmulDesc_t raw = nullptr;
  Product(bool transpose_first, bool transpose_second, const View* bias) {
    check(cublaslt().cublasLtMatmulDescCreate(&raw, CUBLAS_COMPUTE_32F, CUDA_R_32F), "descriptor");
    set(CUBLASLT_MATMUL_DESC_TRANSA, transpose_first ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, transpose_second ? CUBLAS_OP_T : CUBLAS_OP_N);
    if (!bias)
      return;
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias->data);
  }
  ~Product() { cublaslt().cublasLtMatmulDescDestroy(raw); }
  Product(const Product&) = delete;
  template <class T>
  void set(cublasLtMatmulDescAttributes_t attribute, T value) {
    check(cublaslt().cublasLtMatmulDescSetAttribute(raw, attribute, &value, sizeof value),
          "descriptor");
  }
};

struct Preference {
  cublasLtMatmulPreference_t raw = nullptr;
  Preference() { check(cublaslt().cublasLtMatmulPreferenceCreate(&raw), "preference"); }
  ~Preference() { cublaslt().cublasLtMatmulPreferenceDestroy(raw); }
  Preference(const Preference&) = delete;
  template <class T>
  void set(cublasLtMatmulPreferenceAttributes_t attribute, T value) {
    check(cublaslt().cublasLtMatmulPreferenceSetAttribute(raw, attribute, &value, sizeof value),
          "preference");
  }
};

// How a row-major view looks to column-major cuBLASLt. Rows dense: the memory is the view's
// transpose, as wanted below.
struct Operand {
  void* data;
  int64_t rows, columns, leading;
  bool transpose;
};
Operand operand(const View& v, int64_t offset) {
  void* data = static_cast<char*>(v.data) + offset * static_cast<int64_t>(size_of(v.dtype));
  const int64_t rows = v.size(-2), columns = v.size(-1);
  // A dimension of size 1 has any stride, so the leading size is at least what cuBLASLt demands.
  if (v.stride(-1) == 1)
    return {data, columns, rows, std::max(v.stride(-2), columns), false};
  return {data, rows, columns, std::max(v.stride(-1), rows), true};
}

uint32_t alignment(const void* p) {
  const uintptr_t lowest_bit =
      reinterpret_cast<uintptr_t>(p) & (~reinterpret_cast<uintptr_t>(p) + 1);
  return static_cast<uint32_t>(std::min<uintptr_t>(lowest_bit, 256));
}

// The leading dimensions: the innermost ones that all three views walk with one stride each are
// cuBLASLt's batch, the others are walked by a loop.
struct Batch {
  int64_t count = 1;
  int64_t stride_a = 0, stride_b = 0, stride_out = 0;
  int outer_dims;
};
Batch batch_of(const View& a, const View& b, const View& out) {
  Batch batch{.outer_dims = out.rank - 2};
  while (batch.outer_dims > 0) {
    const int d = batch.outer_dims - 1;
    if (out.shape[d] != 1) {
      const bool first = batch.count == 1;
      if (first)
        batch.stride_a = a.strides[d], batch.stride_b = b.strides[d],
        batch.stride_out = out.strides[d];
      else if (a.strides[d] != batch.count * batch.stride_a ||
               b.strides[d] != batch.count * batch.stride_b ||
               out.strides[d] != batch.count * batch.stride_out)
        break;
      batch.count *= out.shape[d];
    }
    --batch.outer_dims;
  }
  return batch;
}

// A sum over nothing, which cuBLASLt refuses.
void clear(const Operand& result, DType type, const Batch& batch, cudaStream_t stream) {
  const size_t item = size_of(type);
  for (int64_t i = 0; i < batch.count; ++i) {
    char* matrix =
        static_cast<char*>(result.data) + static_cast<size_t>(i * batch.stride_out) * item;
    cuda::check(cudaMemset2DAsync(
                    matrix, result.leading * item, 0, result.rows * item, result.columns, stream),
                "matmul");
  }
}

// What the algorithm may take and rely on.
void set_limits(Preference& preference,
                const Operand& first,
                const Operand& second,
                const Operand& result,
                const Workspace& workspace) {
  preference.set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(workspace.bytes));
  preference.set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                 static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment(first.data));
  preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment(second.data));
  preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment(result.data));
  preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment(result.data));
}

// outᵀ = bᵀ·aᵀ in cuBLASLt's terms, for one batch that starts at these offsets (in elements).
void multiply(const View& a,
              const View& b,
              const View& out,
              const int64_t (&offsets)[3],
              const Batch& batch,
              const MatmulOptions& options,
              Workspace workspace,
              cudaStream_t stream) {
  const Operand first = operand(b, offsets[1]), second = operand(a, offsets[0]),
                result = operand(out, offsets[2]);
  if (a.size(-1) == 0)
    return options.accumulate ? void() : clear(result, out.dtype, batch, stream);
  const Product product(first.transpose, second.transpose, options.bias);
  const Layout layout_first(
      b.dtype, first.rows, first.columns, first.leading, batch.count, batch.stride_b);
  const Layout layout_second(
      a.dtype, second.rows, second.columns, second.leading, batch.count, batch.stride_a);
  const Layout layout_out(
      out.dtype, result.rows, result.columns, result.leading, batch.count, batch.stride_out);
  Preference preference;
  set_limits(preference, first, second, result, workspace);

  // The library caches its answers by shape, so there is no cache here.
  cublasLtMatmulHeuristicResult_t choice{};
  int found = 0;
  check(cublaslt().cublasLtMatmulAlgoGetHeuristic(handle(),
                                                  product.raw,
                                                  layout_first.raw,
                                                  layout_second.raw,
                                                  layout_out.raw,
                                                  layout_out.raw,
                                                  preference.raw,
                                                  1,
                                                  &choice,
                                                  &found),
        "choice of algorithm");
  const float alpha = 1, beta = options.accumulate ? 1.0f : 0.0f;
  check(cublaslt().cublasLtMatmul(handle(),
                                  product.raw,
                                  &alpha,
                                  first.data,
                                  layout_first.raw,
                                  second.data,
                                  layout_second.raw,
                                  &beta,
                                  result.data,
                                  layout_out.raw,
                                  result.data,
                                  layout_out.raw,
                                  &choice.algo,
                                  workspace.data,
                                  workspace.bytes,
                                  stream),
        "cublasLtMatmul");
}

// x with as many leading dimensions as the product has, strides 0 where it is broadcast.
View with_leading(const View& x, const View& out) {
  View r = out;
  r.data = x.data;
  const int missing = out.rank - x.rank;
  for (int d = 0; d < out.rank; ++d)
    r.strides[d] = d < missing || x.shape[d - missing] == 1 ? 0 : x.strides[d - missing];
  for (int d = -2; d < 0; ++d) {
    r.shape[d + r.rank] = x.size(d);
    r.strides[d + r.rank] = x.stride(d);
  }
  return r;
}

View turned(View x) {
  std::swap(x.shape[x.rank - 2], x.shape[x.rank - 1]);
  std::swap(x.strides[x.rank - 2], x.strides[x.rank - 1]);
  return x;
}

// Where the epilogue cannot: out rounded, then the sum rounded.
void add_bias(const View& out, View bias, StreamHandle stream) {
  bias.strides[out.rank - 1] = bias.strides[0];
  for (int d = 0; d < out.rank; ++d)
    bias.shape[d] = out.shape[d];
  for (int d = 0; d < out.rank - 1; ++d)
    bias.strides[d] = 0;
  bias.rank = out.rank;
  const View inputs[] = {out, bias};
  cuda_kernels()->pointwise[out.dtype](PointwiseOp::add, inputs, out, 0, stream);
}

// out's rows are dense.
void multiply_batches(const View& a,
                      const View& b,
                      const View& out,
                      const MatmulOptions& options,
                      Workspace workspace,
                      cudaStream_t stream) {
  const Batch batch = batch_of(a, b, out);
  int64_t outer = 1;
  for (int d = 0; d < batch.outer_dims; ++d)
    outer *= out.shape[d];
  for (int64_t i = 0; i < outer; ++i) {
    int64_t offsets[3] = {}, rest = i;
    for (int d = batch.outer_dims - 1; d >= 0; --d) {
      const int64_t index = rest % out.shape[d];
      rest /= out.shape[d];
      offsets[0] += index * a.strides[d];
      offsets[1] += index * b.strides[d];
      offsets[2] += index * out.strides[d];
    }
    multiply(a, b, out, offsets, batch, options, workspace, stream);
  }
}

}  // namespace

void matmul(const View& a,
            const View& b,
            const View& out,
            const MatmulOptions& options,
            Workspace workspace,
            StreamHandle stream) {
  if (out.numel() == 0)
    return;
  const View left = with_leading(a, out), right = with_leading(b, out);
  const bool by_columns = out.size(-1) > 1 && out.stride(-1) != 1;
  const bool bias_after = options.bias && (by_columns || a.size(-1) == 0);
  const MatmulOptions product{.accumulate = options.accumulate,
                              .bias = bias_after ? nullptr : options.bias};
  if (by_columns)
    multiply_batches(
        turned(right), turned(left), turned(out), product, workspace, stream_of(stream));
  else
    multiply_batches(left, right, out, product, workspace, stream_of(stream));
  if (bias_after)
    add_bias(out, *options.bias, stream);
}

size_t matmul_workspace(const View&, const View&, const View&, int) {
  return workspace_bytes;
}

}  // namespace sg::kernels::cuda

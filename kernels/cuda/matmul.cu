// Products by cuBLASLt: f32 sums (f64 of f64), bias as its epilogue, one strided batch a call. The
// algorithm depends on shapes and types alone: the library is told of one alignment, and a view
// that lies below it is copied into the workspace first. Splits of k add up in the workspace in f32
// in a fixed order: the same call gives the same bits, wherever its operands lie.
#include <algorithm>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>

#include "kernels/cuda/cublaslt.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/products.h"
#include "kernels/entries.h"

namespace sg::kernels::cuda {
namespace {

// What NVIDIA recommends for Hopper, at most; small products can't use as much.
constexpr size_t most_workspace_bytes = size_t(32) << 20;
constexpr size_t most_splits = 16;  // of k, each with its own sums
constexpr uint32_t alignment = 16;  // of operands and results, in bytes

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
  switch (t) {
    case DType::f64: return CUDA_R_64F;
    case DType::f16: return CUDA_R_16F;
    case DType::bf16: return CUDA_R_16BF;
    default: return CUDA_R_32F;
  }
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
  Product(bool transpose_first, bool transpose_second, DType out, const View* bias) {
    const bool wide = out == DType::f64;
    const auto compute = wide ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F;
    const auto scale = wide ? CUDA_R_64F : CUDA_R_32F;
    check(cublaslt().cublasLtMatmulDescCreate(&raw, compute, scale), "descriptor");
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

// alpha = 1 and beta, in the type that the product is computed in.
struct Scalars {
  float narrow[2];
  double exact[2];
  bool is_exact;
  Scalars(bool accumulate, bool f64)
      : narrow{1, accumulate ? 1.0f : 0.0f}, exact{1, accumulate ? 1.0 : 0.0}, is_exact(f64) {}
  const void* alpha() const { return is_exact ? static_cast<const void*>(&exact[0]) : &narrow[0]; }
  const void* beta() const { return is_exact ? static_cast<const void*>(&exact[1]) : &narrow[1]; }
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
void set_limits(Preference& preference, const Workspace& workspace) {
  preference.set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(workspace.bytes));
  preference.set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                 static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment);
  preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment);
  preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment);
  preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment);
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
  const Product product(first.transpose, second.transpose, out.dtype, options.bias);
  const Layout layout_first(
      b.dtype, first.rows, first.columns, first.leading, batch.count, batch.stride_b);
  const Layout layout_second(
      a.dtype, second.rows, second.columns, second.leading, batch.count, batch.stride_a);
  const Layout layout_out(
      out.dtype, result.rows, result.columns, result.leading, batch.count, batch.stride_out);
  Preference preference;
  set_limits(preference, workspace);

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
  const Scalars scalars(options.accumulate, out.dtype == DType::f64);
  check(cublaslt().cublasLtMatmul(handle(),
                                  product.raw,
                                  scalars.alpha(),
                                  first.data,
                                  layout_first.raw,
                                  second.data,
                                  layout_second.raw,
                                  scalars.beta(),
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
  r.dtype = x.dtype;  // products of 16 bits may be f32
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

// ---- views that lie below the declared alignment

bool lies_aligned(const View& x) {
  const int64_t item = static_cast<int64_t>(size_of(x.dtype));
  bool all = reinterpret_cast<uintptr_t>(x.data) % alignment == 0;
  for (int d = 0; d + 2 < x.rank; ++d)
    all = all && (x.shape[d] == 1 || x.strides[d] * item % alignment == 0);
  return all;
}

// A copy begins at a multiple of 256 bytes. Its matrices too: the rows of each are rounded up.
View dense_like(const View& x, void* data) {
  View copy = x;
  copy.data = data;
  const int64_t lot = 256 / static_cast<int64_t>(size_of(x.dtype));
  int64_t step = 1;
  for (int d = x.rank - 1; d >= 0; --d) {
    copy.strides[d] = step;
    step *= x.shape[d];
    if (d == x.rank - 2)
      step = (step + lot - 1) / lot * lot;
  }
  return copy;
}
size_t copy_bytes(const View& x) {
  const View copy = dense_like(x, nullptr);
  const int64_t matrices = x.rank > 2 ? copy.strides[0] * x.shape[0] : x.numel();
  return (static_cast<size_t>(matrices) * size_of(x.dtype) + 255) / 256 * 256;
}

// What the library gets: a rule by shape, since algorithms depend on it.
size_t library_bytes(const View& out) {
  const size_t sums = static_cast<size_t>(out.numel()) * std::max<size_t>(size_of(out.dtype), 4);
  return std::min(most_workspace_bytes, (most_splits * sums + 255) / 256 * 256);
}

// Hands out the workspace behind what the library gets.
class Copies {
 public:
  Copies(Workspace workspace, size_t of_library)
      : at_(static_cast<char*>(workspace.data) + of_library) {}
  View of(const View& x) {
    const View copy = dense_like(x, at_);
    at_ += copy_bytes(x);
    return copy;
  }

 private:
  char* at_;
};

void multiply_aligned(const View& a,
                      const View& b,
                      const View& out,
                      const MatmulOptions& options,
                      Workspace workspace,
                      StreamHandle stream) {
  const View left = with_leading(a, out);
  const View right = with_leading(b, out);
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

}  // namespace

void multiply(const View& a,
              const View& b,
              const View& out,
              const MatmulOptions& options,
              Workspace workspace,
              StreamHandle stream) {
  if (out.numel() == 0)
    return;
  const size_t of_library = library_bytes(out);
  Copies copies(workspace, of_library);
  const auto placed = [&](const View& x) {
    if (lies_aligned(x))
      return x;
    const View copy = copies.of(x);
    cuda::copy(x, copy, stream);
    return copy;
  };
  const View left = placed(a);
  const View right = placed(b);
  View bias;
  MatmulOptions with_bias = options;
  if (options.bias) {
    bias = placed(*options.bias);
    with_bias.bias = &bias;
  }
  const View result = options.accumulate || lies_aligned(out) ? placed(out) : copies.of(out);
  workspace.bytes = std::min(workspace.bytes, of_library);
  multiply_aligned(left, right, result, with_bias, workspace, stream);
  if (result.data != out.data)
    cuda::copy(result, out, stream);
}

size_t multiply_workspace(const View& a, const View& b, const View& out) {
  size_t bytes = library_bytes(out);
  for (const View* x : {&a, &b, &out}) {
    if (!lies_aligned(*x))
      bytes += copy_bytes(*x);
  }
  const size_t bias = static_cast<size_t>(out.size(-1)) * size_of(out.dtype);
  return bytes + (bias + 255) / 256 * 256;  // which the views don't tell
}

template <class T>
void matmul(const View& a,
            const View& b,
            const View& out,
            const MatmulOptions& options,
            Workspace workspace,
            StreamHandle stream) {
  multiply(a, b, out, options, workspace, stream);
}

size_t matmul_workspace(const View& a, const View& b, const View& out, int) {
  return multiply_workspace(a, b, out);
}

SG_FOR_FLOATS(matmul)

}  // namespace sg::kernels::cuda

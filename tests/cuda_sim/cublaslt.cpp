// Products of the software device: the few functions of cuBLASLt that kernels/cuda/matmul.cu calls,
// in f64 on the host, queued on the stream like a kernel.
#include "kernels/cuda/cublaslt.h"

#include <cstring>

#include "kernels/dtype.h"
#include "tests/cuda_sim/memory.h"
#include "tests/cuda_sim/race.h"
#include "tests/cuda_sim/streams.h"

namespace {

using sg::bf16, sg::f16;

struct Layout {
  cudaDataType type;
  int64_t rows, columns, leading;
  int32_t batch = 1;
  int64_t batch_stride = 0;
};
struct Product {
  cublasOperation_t first = CUBLAS_OP_N, second = CUBLAS_OP_N;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
  bool exact = false;  // computed in f64: alpha and beta are doubles

  double scalar(const void* p) const {
    return exact ? *static_cast<const double*>(p) : double{*static_cast<const float*>(p)};
  }
};

// NVIDIA's handles are opaque structs that these never look into.
template <class T, class Handle>
T& as(Handle handle) {
  return *reinterpret_cast<T*>(handle);
}
template <class T>
void assign(T& member, const void* value, size_t bytes) {
  if (bytes == sizeof(T))
    std::memcpy(&member, value, bytes);
}

double load(const void* p, int64_t i, cudaDataType type) {
  if (type == CUDA_R_16F)
    return static_cast<float>(static_cast<const f16*>(p)[i]);
  if (type == CUDA_R_16BF)
    return static_cast<float>(static_cast<const bf16*>(p)[i]);
  if (type == CUDA_R_64F)
    return static_cast<const double*>(p)[i];
  return static_cast<const float*>(p)[i];
}
void store(void* p, int64_t i, cudaDataType type, double value) {
  const float x = static_cast<float>(value);
  if (type == CUDA_R_64F)
    static_cast<double*>(p)[i] = value;
  else if (type == CUDA_R_16F)
    static_cast<f16*>(p)[i] = f16(x);
  else if (type == CUDA_R_16BF)
    static_cast<bf16*>(p)[i] = bf16(x);
  else
    static_cast<float*>(p)[i] = x;
}

size_t item_of(cudaDataType type) {
  if (type == CUDA_R_64F)
    return 8;
  return type == CUDA_R_32F ? 4 : 2;
}

// Column-major: d (m,n) = op(a)·op(b) + beta·c, with the bias (m) added to every column.
struct Call {
  Product product;
  Layout a, b, d;
  const void *data_a, *data_b;
  void* data_d;
  double beta;

  bool valid() const {
    const int64_t m = product.first == CUBLAS_OP_N ? a.rows : a.columns,
                  k = product.first == CUBLAS_OP_N ? a.columns : a.rows;
    const int64_t kb = product.second == CUBLAS_OP_N ? b.rows : b.columns,
                  n = product.second == CUBLAS_OP_N ? b.columns : b.rows;
    return k == kb && m == d.rows && n == d.columns && a.leading >= a.rows && b.leading >= b.rows &&
           d.leading >= d.rows && a.batch == d.batch && b.batch == d.batch && k > 0;
  }
  double at(const Layout& l, const void* data, bool transposed, int64_t batch, int64_t i, int64_t j)
      const {
    return load(data,
                batch * l.batch_stride + (transposed ? j + i * l.leading : i + j * l.leading),
                l.type);
  }
  void run() const {
    const int64_t k_size = product.first == CUBLAS_OP_N ? a.columns : a.rows;
    for (int64_t batch = 0; batch < d.batch; ++batch)
      for (int64_t j = 0; j < d.columns; ++j)
        for (int64_t i = 0; i < d.rows; ++i) {
          double sum =
              product.epilogue == CUBLASLT_EPILOGUE_BIAS ? load(product.bias, i, d.type) : 0;
          if (beta != 0)
            sum += beta * at(d, data_d, false, batch, i, j);
          for (int64_t k = 0; k < k_size; ++k)
            sum += at(a, data_a, product.first != CUBLAS_OP_N, batch, i, k) *
                   at(b, data_b, product.second != CUBLAS_OP_N, batch, k, j);
          const int64_t to = batch * d.batch_stride + i + j * d.leading;
          store(data_d, to, d.type, sum);
          const size_t bytes = item_of(d.type);
          simt::race::written(static_cast<char*>(data_d) + static_cast<size_t>(to) * bytes, bytes);
        }
  }
};

cublasStatus_t create(cublasLtHandle_t* handle) {
  static int context;
  *handle = reinterpret_cast<cublasLtHandle_t>(&context);
  return CUBLAS_STATUS_SUCCESS;
}
const char* status_string(cublasStatus_t status) {
  return status == CUBLAS_STATUS_INVALID_VALUE ? "CUBLAS_STATUS_INVALID_VALUE" : "another status";
}

cublasStatus_t layout_create(cublasLtMatrixLayout_t* l,
                             cudaDataType type,
                             uint64_t rows,
                             uint64_t columns,
                             int64_t leading) {
  *l = reinterpret_cast<cublasLtMatrixLayout_t>(
      new Layout{type, int64_t(rows), int64_t(columns), leading});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t layout_destroy(cublasLtMatrixLayout_t l) {
  delete &as<Layout>(l);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t layout_set(cublasLtMatrixLayout_t l,
                          cublasLtMatrixLayoutAttribute_t attribute,
                          const void* value,
                          size_t bytes) {
  if (attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT)
    assign(as<Layout>(l).batch, value, bytes);
  else if (attribute == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET)
    assign(as<Layout>(l).batch_stride, value, bytes);
  else
    return CUBLAS_STATUS_NOT_SUPPORTED;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t product_create(cublasLtMatmulDesc_t* p,
                              cublasComputeType_t compute,
                              cudaDataType_t) {
  Product product;
  product.exact = compute == CUBLAS_COMPUTE_64F;
  *p = reinterpret_cast<cublasLtMatmulDesc_t>(new Product(product));
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t product_destroy(cublasLtMatmulDesc_t p) {
  delete &as<Product>(p);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t product_set(cublasLtMatmulDesc_t p,
                           cublasLtMatmulDescAttributes_t attribute,
                           const void* value,
                           size_t bytes) {
  Product& product = as<Product>(p);
  if (attribute == CUBLASLT_MATMUL_DESC_TRANSA)
    assign(product.first, value, bytes);
  else if (attribute == CUBLASLT_MATMUL_DESC_TRANSB)
    assign(product.second, value, bytes);
  else if (attribute == CUBLASLT_MATMUL_DESC_EPILOGUE)
    assign(product.epilogue, value, bytes);
  else if (attribute == CUBLASLT_MATMUL_DESC_BIAS_POINTER)
    assign(product.bias, value, bytes);
  else
    return CUBLAS_STATUS_NOT_SUPPORTED;
  return CUBLAS_STATUS_SUCCESS;
}

// There is one algorithm, so preferences say nothing.
cublasStatus_t preference_create(cublasLtMatmulPreference_t* p) {
  *p = nullptr;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t preference_destroy(cublasLtMatmulPreference_t) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t preference_set(cublasLtMatmulPreference_t,
                              cublasLtMatmulPreferenceAttributes_t,
                              const void*,
                              size_t) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t heuristic(cublasLtHandle_t,
                         cublasLtMatmulDesc_t,
                         cublasLtMatrixLayout_t,
                         cublasLtMatrixLayout_t,
                         cublasLtMatrixLayout_t,
                         cublasLtMatrixLayout_t,
                         cublasLtMatmulPreference_t,
                         int,
                         cublasLtMatmulHeuristicResult_t*,
                         int* found) {
  *found = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t multiply(cublasLtHandle_t,
                        cublasLtMatmulDesc_t product,
                        const void* alpha,
                        const void* a,
                        cublasLtMatrixLayout_t layout_a,
                        const void* b,
                        cublasLtMatrixLayout_t layout_b,
                        const void* beta,
                        const void* c,
                        cublasLtMatrixLayout_t,
                        void* d,
                        cublasLtMatrixLayout_t layout_d,
                        const cublasLtMatmulAlgo_t*,
                        void*,
                        size_t,
                        cudaStream_t stream) {
  const Call call{as<Product>(product),
                  as<Layout>(layout_a),
                  as<Layout>(layout_b),
                  as<Layout>(layout_d),
                  a,
                  b,
                  d,
                  as<Product>(product).scalar(beta)};
  if (!call.valid() || as<Product>(product).scalar(alpha) != 1 || c != d)
    return CUBLAS_STATUS_INVALID_VALUE;
  const std::lock_guard lock(simt::device_lock());
  return simt::enqueue(stream, [call] { call.run(); }) == cudaSuccess
             ? CUBLAS_STATUS_SUCCESS
             : CUBLAS_STATUS_EXECUTION_FAILED;
}

}  // namespace

namespace sg::kernels::cuda {

const CublasLt& cublaslt() {
  static const CublasLt functions = {
      .cublasLtCreate = create,
      .cublasLtGetStatusString = status_string,
      .cublasLtMatrixLayoutCreate = layout_create,
      .cublasLtMatrixLayoutDestroy = layout_destroy,
      .cublasLtMatrixLayoutSetAttribute = layout_set,
      .cublasLtMatmulDescCreate = product_create,
      .cublasLtMatmulDescDestroy = product_destroy,
      .cublasLtMatmulDescSetAttribute = product_set,
      .cublasLtMatmulPreferenceCreate = preference_create,
      .cublasLtMatmulPreferenceDestroy = preference_destroy,
      .cublasLtMatmulPreferenceSetAttribute = preference_set,
      .cublasLtMatmulAlgoGetHeuristic = heuristic,
      .cublasLtMatmul = multiply,
  };
  return functions;
}

}  // namespace sg::kernels::cuda

// Rows of a table by id, and the gradient of the table: ids are sorted, each run of equal ones is
// added up by one block in the order of the rows.
#include "kernels/cuda/rows.h"
#include "kernels/cuda/sort.h"
#include "kernels/entries.h"

namespace sg::kernels::cuda {
namespace {

template <int W, class T, class Id>
__global__ void __launch_bounds__(max_row_threads)
    embedding_kernel(const T* table, const Id* ids, T* out, int64_t rows, int64_t n) {
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const T* const from = table + static_cast<int64_t>(read(ids + row)) * n;
    for (int64_t i = static_cast<int64_t>(threadIdx.x) * W; i < n;
         i += static_cast<int64_t>(blockDim.x) * W) {
      T values[W];
      load<W>(from + i, values);
      store<W>(out + row * n + i, values);
    }
  }
}

template <class T, class Id>
void gather(const View& table, const View& ids, const View& out, StreamHandle stream) {
  const int64_t n = row_size(table);
  if (out.numel() == 0)
    return;
  const bool by_lots = wide_rows<T>(n, table.as<T>(), out.as<T>());
  launch(by_lots ? embedding_kernel<wide<T>, T, Id> : embedding_kernel<1, T, Id>,
         row_blocks(ids.numel()),
         row_threads(n, by_lots ? wide<T> : 1),
         0,
         stream_of(stream),
         table.as<T>(),
         ids.as<Id>(),
         out.as<T>(),
         ids.numel(),
         n);
}

template <int W, class T>
__device__ void add_run(const SortedIds& sorted,
                        int64_t first,
                        int64_t rows,
                        const T* dy,
                        int64_t n,
                        T* out,
                        bool adds) {
  using S = Statistic<T>;
  const uint32_t id = read(sorted.ids + first);
  for (int64_t i = static_cast<int64_t>(threadIdx.x) * W; i < n;
       i += static_cast<int64_t>(blockDim.x) * W) {
    S sum[W] = {};
    for (int64_t k = first; k < rows && read(sorted.ids + k) == id; ++k) {
      S x[W];
      load_as<W>(dy + static_cast<int64_t>(read(sorted.positions + k)) * n + i, x);
      for (int j = 0; j < W; ++j)
        sum[j] = sum[j] + x[j];
    }
    T* const to = out + static_cast<int64_t>(id) * n + i;
    if (adds) {
      S before[W];
      load_as<W>(to, before);
      for (int j = 0; j < W; ++j)
        sum[j] = before[j] + rounded<T>(sum[j]);
    }
    store_as<W>(to, sum);
  }
}

template <int W, class T>
__global__ void __launch_bounds__(max_row_threads) embedding_backward_kernel(
    SortedIds sorted, const T* dy, T* d_table, int64_t rows, int64_t n, bool adds) {
  for (int64_t k = blockIdx.x; k < rows; k += gridDim.x) {
    const bool begins = k == 0 || read(sorted.ids + k) != read(sorted.ids + k - 1);
    if (begins)
      add_run<W>(sorted, k, rows, dy, n, d_table, adds);
  }
}

}  // namespace

template <class T>
void embedding(const View& table, const View& ids, const View& out, StreamHandle stream) {
  if (ids.dtype == DType::i64)
    gather<T, int64_t>(table, ids, out, stream);
  else
    gather<T, int32_t>(table, ids, out, stream);
}

template <class T>
void embedding_backward(const View& ids,
                        const View& dy,
                        const View& d_table,
                        bool accumulate,
                        Workspace workspace,
                        StreamHandle stream) {
  const int64_t n = row_size(d_table);
  const int64_t rows = ids.numel();
  if (!accumulate)
    fill(d_table, 0, stream);
  if (rows == 0 || n == 0)
    return;
  const SortedIds sorted = sort_ids(ids, d_table.shape[0], workspace, stream);
  const bool by_lots = wide_rows<T>(n, dy.as<T>(), d_table.as<T>());
  launch(by_lots ? embedding_backward_kernel<wide<T>, T> : embedding_backward_kernel<1, T>,
         static_cast<unsigned>(std::min<int64_t>(rows, 4096)),
         row_threads(n, by_lots ? wide<T> : 1),
         0,
         stream_of(stream),
         sorted,
         dy.as<T>(),
         d_table.as<T>(),
         rows,
         n,
         accumulate);
}

size_t embedding_backward_workspace(const View& ids, const View&, int) {
  return sort_workspace(ids.numel());
}

SG_FOR_FLOATS(embedding)
SG_FOR_FLOATS(embedding_backward)

}  // namespace sg::kernels::cuda

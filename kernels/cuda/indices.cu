// Ids and targets are looked over before a kernel follows them into memory.
#include <type_traits>

#include "kernels/cuda/rows.h"
#include "kernels/entries.h"

namespace sg::kernels::cuda {
namespace {

constexpr int threads = 256;

// One block: a thread's first find, then the least of the block's.
template <class T>
__global__ void __launch_bounds__(threads)
    find_outside_kernel(const T* ids, int64_t n, int64_t low, int64_t high, int64_t* first) {
  int64_t found = n;
  for (int64_t i = threadIdx.x; i < n && found == n; i += threads) {
    const int64_t id = static_cast<int64_t>(read(ids + i));
    if (id < low || id >= high)
      found = i;
  }
  found = block_combine(found, n, Least<int64_t>{});
  if (threadIdx.x == 0)
    write(first, found == n ? int64_t{-1} : found);
}

}  // namespace

template <class T>
void find_outside(
    const View& ids, int64_t low, int64_t high, const View& first, StreamHandle stream) {
  launch(find_outside_kernel<T>,
         1,
         threads,
         0,
         stream_of(stream),
         ids.as<T>(),
         ids.numel(),
         low,
         high,
         first.as<int64_t>());
}

template decltype(find_outside<int32_t>) find_outside<int32_t>;
template decltype(find_outside<int64_t>) find_outside<int64_t>;

}  // namespace sg::kernels::cuda

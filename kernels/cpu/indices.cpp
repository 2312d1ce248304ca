// Ids and targets are looked over before a kernel follows them into memory.
#include <type_traits>

#include "kernels/entries.h"

namespace sg::kernels::SG_ISA {
namespace {

constexpr int64_t block = 2048;  // ids between two looks at the result

}  // namespace

// One subtraction and one unsigned comparison an id, which the compiler turns into vectors.
template <class T>
void find_outside(const View& ids, int64_t low, int64_t high, const View& first, StreamHandle) {
  using U = std::make_unsigned_t<T>;
  const T* const x = ids.as<T>();
  constexpr auto most = static_cast<int64_t>(~U(0) >> 1);
  const U base = static_cast<U>(low),
          span = static_cast<U>(high - low - 1 < most ? high - low : most - low + 1);
  const int64_t n = ids.numel();
  int64_t& found = *first.as<int64_t>();
  found = -1;
  for (int64_t begin = 0; begin < n && found < 0; begin += block) {
    const int64_t end = n - begin < block ? n : begin + block;
    U outside = 0;
    for (int64_t i = begin; i < end; ++i)
      outside |= static_cast<U>(static_cast<U>(x[i]) - base >= span);
    for (int64_t i = begin; outside && i < end && found < 0; ++i) {
      if (static_cast<U>(static_cast<U>(x[i]) - base) >= span)
        found = i;
    }
  }
}

template void find_outside<int32_t>(const View&, int64_t, int64_t, const View&, StreamHandle);
template void find_outside<int64_t>(const View&, int64_t, int64_t, const View&, StreamHandle);

}  // namespace sg::kernels::SG_ISA

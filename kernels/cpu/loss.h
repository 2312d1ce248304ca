// Parts that the cross-entropy and the classifier share.
#pragma once
#include "kernels/cpu/vec.h"
#include "kernels/view.h"

namespace sg::kernels::SG_ISA {

// Class of row i; −1: ignored.
SG_INLINE int64_t target_of(const View& targets, int64_t i) {
  return targets.dtype == DType::i32 ? targets.as<int32_t>()[i] : targets.as<int64_t>()[i];
}

template <class V, class T>
SG_INLINE Statistic<T> maximum_of(const T* x, int64_t n) {
  const V lowest(-static_cast<Statistic<T>>(__builtin_inff()));
  V most = lowest;
  for_lanes<V>(n, [&](int64_t i, auto part) {
    most = max(within(V(load(x + i, part)), lowest, part), most);
  });
  return horizontal_max(most);
}

// Σ e^(x − shift); the terms are kept in out unless it is null.
template <class V, class T>
SG_INLINE Statistic<T> exponentials(const T* x, int64_t n, Statistic<T> shift, Statistic<T>* out) {
  const V zero(Statistic<T>(0));
  V sum = zero;
  for_lanes<V>(n, [&](int64_t i, auto part) {
    const V e = exp(V(load(x + i, part)) - V(shift));
    if (out)
      store(out + i, e, part);
    sum = sum + within(e, zero, part);
  });
  return horizontal_sum(sum);
}

}  // namespace sg::kernels::SG_ISA

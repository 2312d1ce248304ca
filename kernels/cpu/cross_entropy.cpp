#include "kernels/cpu/loss.h"
#include "kernels/cpu/runtime/parallel.h"
#include "kernels/entries.h"

namespace sg::kernels::SG_ISA {
namespace {

// One row; `gradient` may be null, or x itself. Exponentials are kept in it where it has their
// type, else taken twice.
template <class T>
Statistic<T> row_loss(const T* x, int64_t n, int64_t target, T* gradient, Statistic<T> scale) {
  using W = Statistic<T>;
  using V = Lanes<W>;
  constexpr bool keeps = std::is_same_v<T, W>;
  if (target < 0) {
    for_lanes<V>(gradient ? n : 0,
                 [&](int64_t i, auto part) { store(gradient + i, V(W(0)), part); });
    return 0;
  }
  const W most = maximum_of<V>(x, n), logit = static_cast<W>(x[target]);
  W* kept = nullptr;
  if constexpr (keeps)
    kept = gradient;
  const W sum = exponentials<V>(x, n, most, kept);
  const W loss = horizontal_max(log(V(sum))) + most - logit;
  if (!gradient)
    return loss;
  const W factor = scale / sum, hit = horizontal_max(exp(V(logit - most))) * factor - scale;
  for_lanes<V>(n, [&](int64_t i, auto part) {
    const V e = keeps ? V(load(gradient + i, part)) : exp(V(load(x + i, part)) - V(most));
    store(gradient + i, e * V(factor), part);
  });
  gradient[target] = T(hit);
  return loss;
}

}  // namespace

template <class T>
void cross_entropy(const View& logits,
                   const View& targets,
                   const View& losses,
                   const View& d_logits,
                   float scale,
                   StreamHandle stream) {
  using W = Statistic<T>;
  const int64_t rows = logits.shape[0], n = logits.shape[1];
  parallel_chunks(stream, plan::rows(rows, n), [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      T* const gradient = d_logits.data ? d_logits.as<T>() + r * n : nullptr;
      losses.as<W>()[r] = row_loss(
          logits.as<T>() + r * n, n, target_of(targets, r), gradient, static_cast<W>(scale));
    }
  });
}

SG_FOR_FLOATS(cross_entropy)

}  // namespace sg::kernels::SG_ISA

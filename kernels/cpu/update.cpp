// Optimizer passes and the sums around them. Every element's result depends on its own inputs
// alone, so any split of the arrays gives the same bits; sums of squares are cut into chunks of
// norm_chunk.
#include "kernels/update.h"

#include <atomic>
#include <cstring>
#include <mutex>

#include "kernels/cpu/nonfinite.h"
#include "kernels/cpu/runtime/parallel.h"
#include "kernels/cpu/vec.h"
#include "kernels/entries.h"

namespace sg::kernels::SG_ISA {
namespace {

// An optimizer pass is bound by memory: asking for a line this many elements ahead takes an eighth
// of its time away.
constexpr int64_t ahead = 512;
template <class T>
SG_INLINE void prefetch(const T* x) {
  __builtin_prefetch(x + ahead, 0, 2);
}

// body(begin, end, parameter) over all chunks; parameter is a pointer of the 16-bit type that
// receives rounded master weights, or null as a float*.
template <class F>
void for_chunks(const View& master, const View& parameter, StreamHandle stream, F&& body) {
  parallel_chunks(stream, plan::update(master.numel()), [&](int64_t begin, int64_t end, int) {
    if (!parameter.data)
      body(begin, end, static_cast<float*>(nullptr));
    else if (parameter.dtype == DType::bf16)
      body(begin, end, parameter.as<bf16>());
    else
      body(begin, end, parameter.as<f16>());
  });
}

// Stores updated master weights, and rounded ones where parameters are 16-bit.
template <class P, class Part>
SG_INLINE void put(float* master, P* parameter, int64_t i, Vec p, Part part) {
  store(master + i, p, part);
  if constexpr (!std::is_same_v<P, float>)
    store(parameter + i, p, part);
}

}  // namespace

template <class G>
void adam(const View& master,
          const View& gradient,
          const View& moment1,
          const View& moment2,
          const View& parameter,
          const AdamOptions& options,
          StreamHandle stream) {
  const element::Adam update(options);
  float *const p = master.as<float>(), *const m = moment1.as<float>(),
               *const v = moment2.as<float>();
  const G* const g = gradient.as<G>();
  for_chunks(master, parameter, stream, [&](int64_t begin, int64_t end, auto* rounded) {
    for_lanes<Vec>(end - begin, [&](int64_t j, auto part) {
      const int64_t i = begin + j;
      prefetch(p + i), prefetch(m + i), prefetch(v + i), prefetch(g + i);
      Vec pi = load(p + i, part), mi = load(m + i, part), vi = load(v + i, part);
      update(pi, load(g + i, part), mi, vi);
      store(m + i, mi, part);
      store(v + i, vi, part);
      put(p, rounded, i, pi, part);
    });
  });
}

template <class G>
void sgd(const View& master,
         const View& gradient,
         const View& momentum,
         const View& parameter,
         const SgdOptions& options,
         StreamHandle stream) {
  const element::Sgd update(options);
  float *const p = master.as<float>(), *const b = momentum.as<float>();
  const G* const g = gradient.as<G>();
  for_chunks(master, parameter, stream, [&](int64_t begin, int64_t end, auto* rounded) {
    for_lanes<Vec>(end - begin, [&](int64_t j, auto part) {
      const int64_t i = begin + j;
      Vec pi = load(p + i, part);
      if (b) {
        Vec bi = load(b + i, part);
        update(pi, load(g + i, part), bi);
        store(b + i, bi, part);
      } else {
        update(pi, load(g + i, part));
      }
      put(p, rounded, i, pi, part);
    });
  });
}

template <class G>
void lion(const View& master,
          const View& gradient,
          const View& momentum,
          const View& parameter,
          const LionOptions& options,
          StreamHandle stream) {
  const element::Lion update(options);
  float *const p = master.as<float>(), *const m = momentum.as<float>();
  const G* const g = gradient.as<G>();
  for_chunks(master, parameter, stream, [&](int64_t begin, int64_t end, auto* rounded) {
    for_lanes<Vec>(end - begin, [&](int64_t j, auto part) {
      const int64_t i = begin + j;
      Vec pi = load(p + i, part), mi = load(m + i, part);
      update(pi, load(g + i, part), mi);
      store(m + i, mi, part);
      put(p, rounded, i, pi, part);
    });
  });
}

template <class T>
void accumulate(const View& x, const View& acc, StreamHandle stream) {
  const auto add = [&](auto* sums) {
    const T* const terms = x.as<T>();
    parallel_chunks(stream, plan::update(x.numel()), [&](int64_t begin, int64_t end, int) {
      for_lanes<Lanes<T>>(end - begin, [&](int64_t j, auto part) {
        const int64_t i = begin + j;
        store(sums + i, load(sums + i, part) + load(terms + i, part), part);
      });
    });
  };
  if (acc.dtype == dtype_of<T>)
    add(acc.as<T>());
  else if constexpr (!std::is_same_v<T, double>)
    add(acc.as<float>());
}

template <class T>
void sum_squares(const View& x, const View& partial, StreamHandle stream) {
  const int64_t n = x.numel();
  parallel_chunks(stream, plan::update(n), [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; i += norm_chunk) {
      const T* const p = x.as<T>() + i;
      Sum8 sum;
      for_lanes<Vec>(end - i < norm_chunk ? end - i : norm_chunk, [&](int64_t j, auto part) {
        prefetch(p + j);
        sum.add_squares(load(p + j, part));
      });
      double s[8];
      sum.lanes(s);
      partial.as<double>()[i / norm_chunk] =
          ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
    }
  });
}

// Adjacent pairs, an odd last one carried up, is what a binary counter does: the sum of ranks 0 … r
// holds one subtree per set bit of r + 1, and at the end the subtrees join from the smallest up.
// `n` is a constant for few ranks, where the counter dissolves into plain sums in registers.
template <class T, class N, class Out>
void add_tree(N n, const View* inputs, Out* out, int64_t begin, int64_t end, float scale) {
  using V = Lanes<T>;
  for_lanes<V>(end - begin, [&](int64_t j, auto part) {
    V subtrees[32];
    int trees = 0;
    for (int rank = 0; rank < n; ++rank) {
      V x = load(inputs[rank].as<T>() + begin + j, part);
      for (int bits = rank; bits & 1; bits >>= 1)
        x = subtrees[--trees] + x;
      subtrees[trees++] = x;
    }
    V total = subtrees[--trees];
    while (trees > 0)
      total = subtrees[--trees] + total;
    store(out + j, total * V(scale), part);
  });
}

template <class T, class Out>
void add_terms(int n, const View* inputs, Out* out, int64_t begin, int64_t end, float scale) {
  switch (n) {
    case 2: return add_tree<T>(std::integral_constant<int, 2>(), inputs, out, begin, end, scale);
    case 4: return add_tree<T>(std::integral_constant<int, 4>(), inputs, out, begin, end, scale);
    default: return add_tree<T>(n, inputs, out, begin, end, scale);
  }
}

// A block of the sum stays in the first-level cache beside its terms while it is looked over and
// copied to where it is wanted.
constexpr int64_t sum_block_bytes = 8 * 1024;

template <class T, class Out>
void tree_sum_of(const View* inputs,
                 int n,
                 const View* outs,
                 int n_outs,
                 float scale,
                 const View& first,
                 StreamHandle stream) {
  constexpr int64_t block = sum_block_bytes / static_cast<int64_t>(sizeof(Out));
  std::mutex mutex;
  int64_t found = -1, culprit = -1;
  // Before the sum is copied: a place may be an input's.
  const auto note = [&](int64_t at) {
    const std::lock_guard lock(mutex);
    if (found >= 0 && found < at)
      return;
    found = at;
    culprit = -1;
    for (int i = 0; i < n && culprit < 0; ++i)
      culprit = first_nonfinite(inputs[i].as<T>() + at, 1) < 0 ? -1 : i;
  };
  const bool directly = n_outs == 1 && !first.data;
  parallel_chunks(stream, plan::update(outs[0].numel()), [&](int64_t begin, int64_t end, int) {
    if (directly)
      return add_terms<T>(n, inputs, outs[0].as<Out>() + begin, begin, end, scale);
    alignas(64) Out sum[block];
    for (int64_t i = begin; i < end; i += block) {
      const int64_t count = end - i < block ? end - i : block;
      add_terms<T>(n, inputs, sum, i, i + count, scale);
      const int64_t at = first.data ? first_nonfinite(sum, count) : -1;
      if (at >= 0)
        note(i + at);
      for (int k = 0; k < n_outs; ++k)
        std::memcpy(outs[k].as<Out>() + i, sum, static_cast<size_t>(count) * sizeof(Out));
    }
  });
  if (first.data) {
    first.as<int64_t>()[0] = found;
    first.as<int64_t>()[1] = culprit;
  }
}

template <class T>
void tree_sum(const View* inputs,
              int n,
              const View* outs,
              int n_outs,
              float scale,
              const View& first,
              StreamHandle stream) {
  if (outs[0].dtype == dtype_of<T>)
    tree_sum_of<T, T>(inputs, n, outs, n_outs, scale, first, stream);
  else if constexpr (!std::is_same_v<T, double>)
    tree_sum_of<T, float>(inputs, n, outs, n_outs, scale, first, stream);
}

// Lowers `first`, which is −1 or a position, to `at`; from several threads.
void lower(std::atomic<int64_t>& first, int64_t at) {
  int64_t known = first.load(std::memory_order_relaxed);
  while ((known < 0 || at < known) &&
         !first.compare_exchange_weak(known, at, std::memory_order_relaxed)) {
  }
}

template <class T>
void find_nonfinite(const View& x, const View& first, StreamHandle stream) {
  std::atomic<int64_t> found{-1};
  parallel_chunks(stream, plan::update(x.numel()), [&](int64_t begin, int64_t end, int) {
    const int64_t at = first_nonfinite(x.as<T>() + begin, end - begin);
    if (at >= 0)
      lower(found, begin + at);
  });
  *first.as<int64_t>() = found;
}

SG_FOR_GRADIENTS(adam)
SG_FOR_GRADIENTS(sgd)
SG_FOR_GRADIENTS(lion)
SG_FOR_GRADIENTS(sum_squares)
SG_FOR_FLOATS(accumulate)
SG_FOR_FLOATS(tree_sum)
SG_FOR_FLOATS(find_nonfinite)

}  // namespace sg::kernels::SG_ISA

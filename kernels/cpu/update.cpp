// Optimizer passes and the sums around them. Every element's result depends on its own inputs
// alone, so any split of the arrays gives the same bits; sums of squares are cut into chunks of
// norm_chunk.
#include "kernels/update.h"

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/runtime/parallel.h"
#include "kernels/cpu/vec.h"

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
void tree_sum_of(
    N n, const View* inputs, Out* out, int64_t count, float scale, StreamHandle stream) {
  using V = Lanes<T>;
  parallel_chunks(stream, plan::update(count), [&](int64_t begin, int64_t end, int) {
    for_lanes<V>(end - begin, [&](int64_t j, auto part) {
      const int64_t i = begin + j;
      V subtrees[32];
      int trees = 0;
      for (int rank = 0; rank < n; ++rank) {
        V x = load(inputs[rank].as<T>() + i, part);
        for (int bits = rank; bits & 1; bits >>= 1)
          x = subtrees[--trees] + x;
        subtrees[trees++] = x;
      }
      V total = subtrees[--trees];
      while (trees > 0)
        total = subtrees[--trees] + total;
      store(out + i, total * V(scale), part);
    });
  });
}

template <class T>
void tree_sum(const View* inputs, int n, const View& out, float scale, StreamHandle stream) {
  const auto sum = [&](auto* y) {
    switch (n) {
      case 2:
        return tree_sum_of<T>(
            std::integral_constant<int, 2>(), inputs, y, out.numel(), scale, stream);
      case 4:
        return tree_sum_of<T>(
            std::integral_constant<int, 4>(), inputs, y, out.numel(), scale, stream);
      default: return tree_sum_of<T>(n, inputs, y, out.numel(), scale, stream);
    }
  };
  if (out.dtype == dtype_of<T>)
    sum(out.as<T>());
  else if constexpr (!std::is_same_v<T, double>)
    sum(out.as<float>());
}

#define SG_FOR_GRADIENTS(kernel, ...)       \
  template void kernel<float>(__VA_ARGS__); \
  template void kernel<f16>(__VA_ARGS__);   \
  template void kernel<bf16>(__VA_ARGS__);

SG_FOR_GRADIENTS(adam,
                 const View&,
                 const View&,
                 const View&,
                 const View&,
                 const View&,
                 const AdamOptions&,
                 StreamHandle)
SG_FOR_GRADIENTS(
    sgd, const View&, const View&, const View&, const View&, const SgdOptions&, StreamHandle)
SG_FOR_GRADIENTS(
    lion, const View&, const View&, const View&, const View&, const LionOptions&, StreamHandle)
SG_FOR_GRADIENTS(sum_squares, const View&, const View&, StreamHandle)
SG_FOR_FLOATS(accumulate, const View&, const View&, StreamHandle)
SG_FOR_FLOATS(tree_sum, const View*, int, const View&, float, StreamHandle)

}  // namespace sg::kernels::SG_ISA

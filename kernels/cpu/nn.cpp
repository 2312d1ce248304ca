// Softmax, layer and RMS norm, activations: everything that works row by row between two products.
#include "kernels/cpu/rows.h"
#include "kernels/entries.h"

namespace sg::kernels::SG_ISA {
namespace {

// LayerNorm (centred) and RMSNorm (not) of one row: y = (x − mean)·rstd·gain + bias.
template <class T, bool centred>
SG_INLINE void normalise_row(const T* x,
                             const T* gain,
                             const T* bias,
                             int64_t n,
                             float eps,
                             T* y,
                             Statistic<T>& mean,
                             Statistic<T>& rstd) {
  using V = Lanes<T>;
  using S = Statistic<T>;
  mean = 0;
  if constexpr (centred) {
    mean =
        static_cast<S>(sum_lanes<V>(n, [&](int64_t i, auto part) { return load(x + i, part); })) /
        static_cast<S>(n);
  }
  const V centre(mean);
  const S squares = sum_lanes<V>(n, [&](int64_t i, auto part) {
    const V d = load(x + i, part) - centre;
    return d * d;
  });
  rstd = S(1) / sqrt(squares / static_cast<S>(n) + static_cast<S>(eps));
  const V scale(rstd);
  for_lanes<V>(n, [&](int64_t i, auto part) {
    const V normal = (load(x + i, part) - centre) * scale;
    store(y + i,
          bias ? fma(normal, load(gain + i, part), load(bias + i, part))
               : normal * load(gain + i, part),
          part);
  });
}

template <class T, bool centred>
void norm(const View& x,
          const View& residual,
          const View& gain,
          const View& bias,
          float eps,
          const View& sum,
          const View& y,
          const View& mean,
          const View& rstd,
          StreamHandle stream) {
  using V = Lanes<T>;
  const int64_t rows = row_count(x), n = row_size(x);
  for_each_row(stream, rows, n, [&](int64_t row) {
    const T* in = x.as<T>() + row * n;
    if (residual.data) {
      const T* const r = residual.as<T>() + row * n;
      T* const s = sum.as<T>() + row * n;
      for_lanes<V>(n, [&](int64_t i, auto part) {
        store(s + i, load(in + i, part) + load(r + i, part), part);
      });
      in = s;
    }
    Statistic<T> mean_of_row, rstd_of_row;
    normalise_row<T, centred>(
        in, gain.as<T>(), bias.as<T>(), n, eps, y.as<T>() + row * n, mean_of_row, rstd_of_row);
    if constexpr (centred)
      mean.as<Statistic<T>>()[row] = mean_of_row;
    rstd.as<Statistic<T>>()[row] = rstd_of_row;
  });
}

// With x̂ = (x − mean)·rstd and e = dy·gain: dx = rstd·(e − mean(e) − x̂·mean(e·x̂)), without
// mean(e) if not centred; d_gain = Σ dy·x̂ and d_bias = Σ dy over rows.
template <class T, bool centred>
void norm_backward(const View& dy,
                   const View& d_sum,
                   const View& x,
                   const View& gain,
                   const View& mean,
                   const View& rstd,
                   const View& dx,
                   const View& d_gain,
                   const View& d_bias,
                   Workspace workspace,
                   StreamHandle stream) {
  using V = Lanes<T>;
  using S = Statistic<T>;
  const int64_t rows = row_count(x), n = row_size(x);
  const T* const g = gain.as<T>();
  T* const outs[2] = {d_gain.as<T>(), d_bias.as<T>()};
  column_sums(rows, n, outs, workspace, stream, [&](int64_t begin, int64_t end, S* gain_sum) {
    S* const bias_sum = gain_sum + n;
    for (int64_t row = begin; row < end; ++row) {
      const T *const xr = x.as<T>() + row * n, *const dyr = dy.as<T>() + row * n;
      const T* const through = d_sum.data ? d_sum.as<T>() + row * n : nullptr;
      T* const dxr = dx.as<T>() + row * n;
      const V centre(centred ? mean.as<S>()[row] : S(0)), scale(rstd.as<S>()[row]);
      V e_sum(0), ex_sum(0);
      for_lanes<V>(
          n, [&](int64_t i, auto part) {  // beyond the part dy is zero, and so is all that is added
            const V d = load(dyr + i, part), normal = (load(xr + i, part) - centre) * scale,
                    e = d * load(g + i, part);
            store(gain_sum + i, fma(d, normal, load(gain_sum + i, part)), part);
            store(bias_sum + i, load(bias_sum + i, part) + d, part);
            e_sum = e_sum + e;
            ex_sum = fma(e, normal, ex_sum);
          });
      const V e_mean(centred ? horizontal_sum(e_sum) / static_cast<S>(n) : S(0));
      const V ex_mean(horizontal_sum(ex_sum) / static_cast<S>(n));
      for_lanes<V>(n, [&](int64_t i, auto part) {
        const V normal = (load(xr + i, part) - centre) * scale,
                e = load(dyr + i, part) * load(g + i, part);
        const V d = scale * fma(-normal, ex_mean, e - e_mean);
        store(dxr + i, through ? load(through + i, part) + rounded<T>(d) : d, part);
      });
    }
  });
}

template <class T, PointwiseOp derivative>
void activation_backward_of(const View& x,
                            const View& dy,
                            const View& dx,
                            const View& d_bias,
                            Workspace workspace,
                            StreamHandle stream) {
  using V = Lanes<T>;
  using S = Statistic<T>;
  constexpr element::Functor<derivative> slope;
  const int64_t rows = row_count(x), n = row_size(x);
  const auto gradient = [&](int64_t at, auto part) {
    const V d = slope(load(x.as<T>() + at, part), load(dy.as<T>() + at, part));
    store(dx.as<T>() + at, d, part);
    return rounded<T>(d);
  };
  if (!d_bias.data) {
    return for_each_row(stream, rows, n, [&](int64_t row) {
      for_lanes<V>(n, [&](int64_t i, auto part) { gradient(row * n + i, part); });
    });
  }
  T* const outs[1] = {d_bias.as<T>()};
  column_sums(rows, n, outs, workspace, stream, [&](int64_t begin, int64_t end, S* sum) {
    for (int64_t row = begin; row < end; ++row) {
      for_lanes<V>(n, [&](int64_t i, auto part) {
        store(sum + i, load(sum + i, part) + gradient(row * n + i, part), part);
      });
    }
  });
}

}  // namespace

template <class T>
void softmax(const View& x, const View& y, StreamHandle stream) {
  using V = Lanes<T>;
  const int64_t rows = row_count(x), n = row_size(x);
  for_each_row(stream, rows, n, [&](int64_t row) {
    const T* const in = x.as<T>() + row * n;
    T* const out = y.as<T>() + row * n;
    V highest(-__builtin_inff());
    for_lanes<V>(n, [&](int64_t i, auto part) {
      highest = max(highest, within(load(in + i, part), highest, part));
    });
    const V top(horizontal_max(highest));
    // The exponential is taken twice instead of storing it in between, where a 16-bit type would
    // round it.
    const auto total =
        sum_lanes<V>(n, [&](int64_t i, auto part) { return exp(load(in + i, part) - top); });
    const V inverse(1 / total);
    for_lanes<V>(n, [&](int64_t i, auto part) {
      store(out + i, exp(load(in + i, part) - top) * inverse, part);
    });
  });
}

// dx = y·(dy − Σ y·dy)
template <class T>
void softmax_backward(const View& y, const View& dy, const View& dx, StreamHandle stream) {
  using V = Lanes<T>;
  const int64_t rows = row_count(y), n = row_size(y);
  for_each_row(stream, rows, n, [&](int64_t row) {
    const T *const yr = y.as<T>() + row * n, *const dyr = dy.as<T>() + row * n;
    T* const out = dx.as<T>() + row * n;
    const V dot(sum_lanes<V>(
        n, [&](int64_t i, auto part) { return load(yr + i, part) * load(dyr + i, part); }));
    for_lanes<V>(n, [&](int64_t i, auto part) {
      store(out + i, load(yr + i, part) * (load(dyr + i, part) - dot), part);
    });
  });
}

template <class T>
void layernorm(const View& x,
               const View& residual,
               const View& gain,
               const View& bias,
               float eps,
               const View& sum,
               const View& y,
               const View& mean,
               const View& rstd,
               StreamHandle stream) {
  norm<T, true>(x, residual, gain, bias, eps, sum, y, mean, rstd, stream);
}
template <class T>
void layernorm_backward(const View& dy,
                        const View& d_sum,
                        const View& x,
                        const View& gain,
                        const View& mean,
                        const View& rstd,
                        const View& dx,
                        const View& d_gain,
                        const View& d_bias,
                        Workspace workspace,
                        StreamHandle stream) {
  norm_backward<T, true>(dy, d_sum, x, gain, mean, rstd, dx, d_gain, d_bias, workspace, stream);
}
template <class T>
void rmsnorm(const View& x,
             const View& residual,
             const View& gain,
             float eps,
             const View& sum,
             const View& y,
             const View& rstd,
             StreamHandle stream) {
  norm<T, false>(x, residual, gain, View{}, eps, sum, y, View{}, rstd, stream);
}
template <class T>
void rmsnorm_backward(const View& dy,
                      const View& d_sum,
                      const View& x,
                      const View& gain,
                      const View& rstd,
                      const View& dx,
                      const View& d_gain,
                      Workspace workspace,
                      StreamHandle stream) {
  norm_backward<T, false>(dy, d_sum, x, gain, View{}, rstd, dx, d_gain, View{}, workspace, stream);
}
size_t layernorm_backward_workspace(const View& x, int) {
  return x.dtype == DType::f64 ? column_sums_bytes<double>(x, 2) : column_sums_bytes<float>(x, 2);
}

template <class T>
void activation_backward(PointwiseOp f,
                         const View& x,
                         const View& dy,
                         const View& dx,
                         const View& d_bias,
                         Workspace workspace,
                         StreamHandle stream) {
  switch (f) {
    case PointwiseOp::gelu:
      return activation_backward_of<T, PointwiseOp::gelu_backward>(
          x, dy, dx, d_bias, workspace, stream);
    case PointwiseOp::gelu_tanh:
      return activation_backward_of<T, PointwiseOp::gelu_tanh_backward>(
          x, dy, dx, d_bias, workspace, stream);
    case PointwiseOp::silu:
      return activation_backward_of<T, PointwiseOp::silu_backward>(
          x, dy, dx, d_bias, workspace, stream);
    default:
      return activation_backward_of<T, PointwiseOp::relu_backward>(
          x, dy, dx, d_bias, workspace, stream);
  }
}

template <class T>
void column_sum(const View& dy, const View& d_bias, Workspace workspace, StreamHandle stream) {
  using V = Lanes<T>;
  const int64_t rows = row_count(dy), n = row_size(dy);
  T* const outs[1] = {d_bias.as<T>()};
  column_sums(rows, n, outs, workspace, stream, [&](int64_t begin, int64_t end, Statistic<T>* sum) {
    for (int64_t row = begin; row < end; ++row) {
      const T* const in = dy.as<T>() + row * n;
      for_lanes<V>(n, [&](int64_t i, auto part) {
        store(sum + i, load(sum + i, part) + load(in + i, part), part);
      });
    }
  });
}
size_t column_sum_workspace(const View& dy, int) {
  return dy.dtype == DType::f64 ? column_sums_bytes<double>(dy, 1)
                                : column_sums_bytes<float>(dy, 1);
}

SG_FOR_FLOATS(softmax)
SG_FOR_FLOATS(softmax_backward)
SG_FOR_FLOATS(layernorm)
SG_FOR_FLOATS(layernorm_backward)
SG_FOR_FLOATS(rmsnorm)
SG_FOR_FLOATS(rmsnorm_backward)
SG_FOR_FLOATS(activation_backward)
SG_FOR_FLOATS(column_sum)

}  // namespace sg::kernels::SG_ISA

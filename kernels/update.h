// The optimizers' element functors, one for host and device: one update of one element (or one
// vector of elements).
//
// Coefficients are made once on the host; the functor itself has explicit FMAs, IEEE division and
// square root, so a parameter gets the same bits wherever and in whatever split it is updated.
// Compile device code without contraction.
#pragma once
#include "kernels/element.h"
#include "kernels/table.h"

namespace sg::element {

// Kingma and Ba, 2015; decoupled weight decay by Loshchilov and Hutter, 2019.
//   m = β1·m + (1 − β1)·g    v = β2·v + (1 − β2)·g²    p −= lr / (1 − β1^t) · m / (√v / √(1 − β2^t)
//   + ε)
// The first step is −lr·g / (|g| + ε), in which the betas and their roundings cancel.
struct Adam {
  float factor, decay, beta1, rest1, beta2, rest2, step, root_correction, eps, first_step;
  bool decoupled, first;

  explicit Adam(const AdamOptions& o)
      : factor(o.factor),
        decay(o.decoupled ? -o.lr * o.weight_decay : o.weight_decay),
        beta1(o.beta1),
        rest1(1 - o.beta1),
        beta2(o.beta2),
        rest2(1 - o.beta2),
        step(-o.lr / o.correction1),
        root_correction(1 / std::sqrt(o.correction2)),
        eps(o.eps),
        first_step(-o.lr),
        decoupled(o.decoupled),
        first(o.first) {}

  template <class V>
  SG_INLINE void operator()(V& p, V g, V& m, V& v) const {
    g = g * V(factor);
    if (decoupled)
      p = fma(V(decay), p, p);
    else
      g = fma(V(decay), p, g);
    m = fma(V(beta1), m, V(rest1) * g);
    v = fma(V(beta2), v, V(rest2) * g * g);
    if (first)
      p = fma(V(first_step), g / (abs(g) + V(eps)), p);
    else
      p = fma(V(step), m / fma(sqrt(v), V(root_correction), V(eps)), p);
  }
};

// g += decay·p    b = momentum·b + g    p −= lr·b, or with Nesterov's momentum p −= lr·(g +
// momentum·b)
struct Sgd {
  float factor, decay, step, momentum;
  bool nesterov, first;

  explicit Sgd(const SgdOptions& o)
      : factor(o.factor),
        decay(o.weight_decay),
        step(-o.lr),
        momentum(o.momentum),
        nesterov(o.nesterov),
        first(o.first) {}

  template <class V>
  SG_INLINE void operator()(V& p, V g, V& buffer) const {
    g = fma(V(decay), p, g * V(factor));
    buffer = first ? g : fma(V(momentum), buffer, g);
    p = fma(V(step), nesterov ? fma(V(momentum), buffer, g) : buffer, p);
  }
  template <class V>
  SG_INLINE void operator()(V& p, V g) const {  // without momentum
    p = fma(V(step), fma(V(decay), p, g * V(factor)), p);
  }
};

// Chen et al., 2023: p −= lr·(sign(β1·m + (1 − β1)·g) + decay·p)    m = β2·m + (1 − β2)·g
struct Lion {
  float factor, decay, beta1, rest1, beta2, rest2, step;

  explicit Lion(const LionOptions& o)
      : factor(o.factor),
        decay(-o.lr * o.weight_decay),
        beta1(o.beta1),
        rest1(1 - o.beta1),
        beta2(o.beta2),
        rest2(1 - o.beta2),
        step(-o.lr) {}

  template <class V>
  SG_INLINE void operator()(V& p, V g, V& m) const {
    g = g * V(factor);
    const V c = fma(V(beta1), m, V(rest1) * g), zero(0.0f);
    const V sign = select(zero < c, V(1.0f), select(c < zero, V(-1.0f), zero));
    p = fma(V(step), sign, fma(V(decay), p, p));
    m = fma(V(beta2), m, V(rest2) * g);
  }
};

}  // namespace sg::element

// exp, log, tanh, erf, pow of a Vec. Included by vec.h.
#pragma once

namespace sg::kernels::SG_ISA {

// e^x = 2^n · e^r with |r| ≤ ln2/2; r = x − n·ln2 in two steps, e^r by its polynomial of degree 6.
SG_INLINE Vec exp(Vec x) {
  x = min(Vec(89.0f), max(Vec(-104.0f), x));  // beyond, the result is infinite or zero; NaN passes
  const Vec n = round(x * Vec(1.44269504f));
  Vec r = fma(n, Vec(-0.693359375f), x);
  r = fma(n, Vec(2.12194440e-4f), r);
  Vec p = Vec(1.9875691500e-4f);
  p = fma(p, r, Vec(1.3981999507e-3f));
  p = fma(p, r, Vec(8.3334519073e-3f));
  p = fma(p, r, Vec(4.1665795894e-2f));
  p = fma(p, r, Vec(1.6666665459e-1f));
  p = fma(p, r, Vec(5.0000001201e-1f));
  p = fma(p, r * r, r) + Vec(1.0f);
  return scale2(p, n);
}

SG_INLINE Vec log(Vec x) {
  return element::written_log(x);
}

SG_INLINE Vec tanh(Vec x) {
  const Vec z = abs(x), z2 = x * x;
  const Vec far = Vec(1.0f) - Vec(2.0f) / (exp(z + z) + Vec(1.0f));
  Vec p = Vec(-5.70498872745e-3f);
  p = fma(p, z2, Vec(2.06390887954e-2f));
  p = fma(p, z2, Vec(-5.37397155531e-2f));
  p = fma(p, z2, Vec(1.33314422036e-1f));
  p = fma(p, z2, Vec(-3.33332819422e-1f));
  const Vec near = fma(p * z2, x, x);
  return select(z < Vec(0.625f), near, copysign(far, x));
}

// Below 475/512 a polynomial in x², above 1 − e^q(x).
SG_INLINE Vec erf(Vec x) {
  const Vec t = abs(x), s = x * x;
  Vec far = fma(Vec(-1.72853470e-5f), t, Vec(3.83197126e-4f));
  far = fma(far, s, fma(Vec(-3.88396438e-3f), t, Vec(2.42546219e-2f)));
  far = fma(far, t, Vec(-1.06777877e-1f));
  far = fma(far, t, Vec(-6.34846687e-1f));
  far = fma(far, t, Vec(-1.28717512e-1f));
  far = fma(far, t, -t);
  far = copysign(Vec(1.0f) - exp(far), x);
  far = select(t > Vec(4.0f),
               copysign(Vec(1.0f), x),
               far);  // the polynomial doesn't hold for large arguments
  Vec near = Vec(-5.96761703e-4f);
  near = fma(near, s, Vec(4.99119423e-3f));
  near = fma(near, s, Vec(-2.67681349e-2f));
  near = fma(near, s, Vec(1.12819925e-1f));
  near = fma(near, s, Vec(-3.76125336e-1f));
  near = fma(near, s, Vec(1.28379166e-1f));
  near = fma(near, x, x);
  return select(x != x, x, select(t > Vec(0.927734375f), far, near));
}

// Lane by lane: rare, and exact where a vector form would not be.
inline Vec pow(Vec x, Vec exponent) {
  float base[Vec::lanes], power[Vec::lanes];
  store(base, x, Full{});
  store(power, exponent, Full{});
  for (int i = 0; i < Vec::lanes; ++i)
    base[i] = __builtin_powf(base[i], power[i]);
  return load(base, Full{});
}

}  // namespace sg::kernels::SG_ISA

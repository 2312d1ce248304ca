// The f32 vector of AVX-512: 16 lanes. Included by vec.h alone, inside the namespace of the
// instruction set.

struct Mask {
  __mmask16 m;
};
SG_INLINE Mask operator&(Mask a, Mask b) {
  return {static_cast<__mmask16>(a.m & b.m)};
}
SG_INLINE Mask operator|(Mask a, Mask b) {
  return {static_cast<__mmask16>(a.m | b.m)};
}

struct Vec {
  static constexpr int lanes = 16;
  __m512 v;
  Vec() = default;
  SG_INLINE Vec(__m512 x) : v(x) {}
  SG_INLINE Vec(float x) : v(_mm512_set1_ps(x)) {}
};

SG_INLINE Vec operator+(Vec a, Vec b) {
  return _mm512_add_ps(a.v, b.v);
}
SG_INLINE Vec operator-(Vec a, Vec b) {
  return _mm512_sub_ps(a.v, b.v);
}
SG_INLINE Vec operator*(Vec a, Vec b) {
  return _mm512_mul_ps(a.v, b.v);
}
SG_INLINE Vec operator/(Vec a, Vec b) {
  return _mm512_div_ps(a.v, b.v);
}
SG_INLINE Vec operator-(Vec a) {
  return _mm512_xor_ps(a.v, _mm512_set1_ps(-0.0f));
}
SG_INLINE Mask operator<(Vec a, Vec b) {
  return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ)};
}
SG_INLINE Mask operator>(Vec a, Vec b) {
  return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_GT_OQ)};
}
SG_INLINE Mask operator==(Vec a, Vec b) {
  return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_EQ_OQ)};
}
SG_INLINE Mask operator!=(Vec a, Vec b) {
  return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_NEQ_UQ)};
}
SG_INLINE Vec select(Mask c, Vec yes, Vec no) {
  return _mm512_mask_blend_ps(c.m, no.v, yes.v);
}

SG_INLINE Vec fma(Vec a, Vec b, Vec c) {
  return _mm512_fmadd_ps(a.v, b.v, c.v);
}
SG_INLINE Vec max(Vec a, Vec b) {
  return _mm512_max_ps(a.v, b.v);
}
SG_INLINE Vec min(Vec a, Vec b) {
  return _mm512_min_ps(a.v, b.v);
}
SG_INLINE Vec sqrt(Vec a) {
  return _mm512_sqrt_ps(a.v);
}
SG_INLINE Vec abs(Vec a) {
  return _mm512_andnot_ps(_mm512_set1_ps(-0.0f), a.v);
}
SG_INLINE Vec copysign(Vec magnitude, Vec sign) {
  const __m512 bit = _mm512_set1_ps(-0.0f);
  return _mm512_or_ps(_mm512_andnot_ps(bit, magnitude.v), _mm512_and_ps(bit, sign.v));
}
SG_INLINE Vec round(Vec a) {
  return _mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
// a · 2^n for integral n, rounded once.
SG_INLINE Vec scale2(Vec a, Vec n) {
  return _mm512_scalef_ps(a.v, n.v);
}
// x = m · 2^e with m in [1, 2) for positive finite x.
SG_INLINE Vec split2(Vec x, Vec& e) {
  e = _mm512_getexp_ps(x.v);
  return _mm512_getmant_ps(x.v, _MM_MANT_NORM_1_2, _MM_MANT_SIGN_src);
}

SG_INLINE __m256i to_bf16(Vec x) {
  const __m512i u = _mm512_castps_si512(x.v);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7fff)), odd);
  const __m512i quiet = _mm512_or_si512(u, _mm512_set1_epi32(0x400000));
  const __m512i bits = _mm512_mask_blend_epi32((x != x).m, rounded, quiet);
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(bits, 16));
}
SG_INLINE Vec from_bf16(__m256i bits) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}
SG_INLINE __m256i to_f16(Vec x) {
  return _mm512_cvtps_ph(x.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
SG_INLINE Vec from_f16(__m256i bits) {
  return _mm512_cvtph_ps(bits);
}

// The first n lanes of a vector, 0 < n < lanes; loads give zeros elsewhere.
struct Part {
  __mmask16 m;
  int n;
  SG_INLINE explicit Part(int64_t count)
      : m(static_cast<__mmask16>((1u << count) - 1)), n(static_cast<int>(count)) {}
};
SG_INLINE Mask mask_of(Part p) {
  return {p.m};
}

SG_INLINE Vec load(const float* p, Full) {
  return _mm512_loadu_ps(p);
}
SG_INLINE Vec load(const float* p, Part part) {
  return _mm512_maskz_loadu_ps(part.m, p);
}
SG_INLINE Vec load(const bf16* p, Full) {
  return from_bf16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
SG_INLINE Vec load(const bf16* p, Part part) {
  return from_bf16(_mm256_maskz_loadu_epi16(part.m, p));
}
SG_INLINE Vec load(const f16* p, Full) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
SG_INLINE Vec load(const f16* p, Part part) {
  return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(part.m, p));
}
SG_INLINE void store(float* p, Vec x, Full) {
  _mm512_storeu_ps(p, x.v);
}
SG_INLINE void store(float* p, Vec x, Part part) {
  _mm512_mask_storeu_ps(p, part.m, x.v);
}
SG_INLINE void store(bf16* p, Vec x, Full) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), to_bf16(x));
}
SG_INLINE void store(bf16* p, Vec x, Part part) {
  _mm256_mask_storeu_epi16(p, part.m, to_bf16(x));
}
SG_INLINE void store(f16* p, Vec x, Full) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), to_f16(x));
}
SG_INLINE void store(f16* p, Vec x, Part part) {
  _mm256_mask_storeu_epi16(p, part.m, to_f16(x));
}

SG_INLINE Mask load_mask(const bool* p, Full) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return {_mm_test_epi8_mask(bytes, bytes)};
}
SG_INLINE Mask load_mask(const bool* p, Part part) {
  const __m128i bytes = _mm_maskz_loadu_epi8(part.m, p);
  return {_mm_test_epi8_mask(bytes, bytes)};
}
SG_INLINE void store(bool* p, Mask x, Full) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm_maskz_set1_epi8(x.m, 1));
}
SG_INLINE void store(bool* p, Mask x, Part part) {
  _mm_mask_storeu_epi8(p, part.m, _mm_maskz_set1_epi8(x.m, 1));
}

// out[n] = element n of each of 16 rows.
SG_INLINE void load_columns(const float* rows, int64_t stride, Vec (&out)[4]) {
  __m512 x[4];  // row n + 4·l in the l-th quarter
  for (int64_t n = 0; n < 4; ++n) {
    const auto quarter = [&](int64_t l) { return _mm_loadu_ps(rows + (n + 4 * l) * stride); };
    x[n] = _mm512_insertf32x4(_mm512_castps128_ps512(quarter(0)), quarter(1), 1);
    x[n] = _mm512_insertf32x4(_mm512_insertf32x4(x[n], quarter(2), 2), quarter(3), 3);
  }
  const auto pairs = [](__m512 a, __m512 b) { return _mm512_castps_pd(_mm512_unpacklo_ps(a, b)); };
  const auto high_pairs = [](__m512 a, __m512 b) {
    return _mm512_castps_pd(_mm512_unpackhi_ps(a, b));
  };
  const __m512d low01 = pairs(x[0], x[1]), low23 = pairs(x[2], x[3]);
  const __m512d high01 = high_pairs(x[0], x[1]), high23 = high_pairs(x[2], x[3]);
  out[0] = _mm512_castpd_ps(_mm512_unpacklo_pd(low01, low23));
  out[1] = _mm512_castpd_ps(_mm512_unpackhi_pd(low01, low23));
  out[2] = _mm512_castpd_ps(_mm512_unpacklo_pd(high01, high23));
  out[3] = _mm512_castpd_ps(_mm512_unpackhi_pd(high01, high23));
}

// Over all lanes, always in the same order: halves are folded onto each other.
SG_INLINE float horizontal_sum(Vec x) {
  const __m256 h = _mm256_add_ps(_mm512_castps512_ps256(x.v), _mm512_extractf32x8_ps(x.v, 1));
  __m128 q = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
  q = _mm_add_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_add_ss(q, _mm_shuffle_ps(q, q, 1)));
}
SG_INLINE float horizontal_max(Vec x) {
  const __m256 h = _mm256_max_ps(_mm512_castps512_ps256(x.v), _mm512_extractf32x8_ps(x.v, 1));
  __m128 q = _mm_max_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
  q = _mm_max_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_max_ss(q, _mm_shuffle_ps(q, q, 1)));
}

// 32-bit unsigned lanes, for Philox.
struct Words {
  __m512i v;
  Words() = default;
  SG_INLINE Words(__m512i x) : v(x) {}
  SG_INLINE explicit Words(uint32_t x) : v(_mm512_set1_epi32(static_cast<int>(x))) {}
};
SG_INLINE Words operator^(Words a, Words b) {
  return _mm512_xor_si512(a.v, b.v);
}
SG_INLINE Words operator+(Words a, Words b) {
  return _mm512_add_epi32(a.v, b.v);
}
SG_INLINE Words load_words(const uint32_t* p) {
  return _mm512_loadu_si512(p);
}
SG_INLINE void store_words(uint32_t* p, Words x) {
  _mm512_storeu_si512(p, x.v);
}
// The lower half of a · factor; the upper half in high.
SG_INLINE Words multiply(Words a, Words factor, Words& high) {
  const __m512i even = _mm512_mul_epu32(a.v, factor.v);
  const __m512i odd = _mm512_mul_epu32(_mm512_srli_epi64(a.v, 32), factor.v);
  high = _mm512_mask_blend_epi32(0xAAAA, _mm512_srli_epi64(even, 32), odd);
  return _mm512_mask_blend_epi32(0xAAAA, even, _mm512_slli_epi64(odd, 32));
}
// Uniform in [0, 1), as random.h's.
SG_INLINE Vec uniform(Words w) {
  return _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_srli_epi32(w.v, 8)),
                       _mm512_set1_ps(5.9604644775390625e-8f));
}

// Eight f64 accumulators: element i of an array adds to lane i mod 8.
struct Sum8 {
  __m512d v = _mm512_setzero_pd();
  SG_INLINE void add_square(__m256 x) {
    const __m512d wide = _mm512_cvtps_pd(x);
    v = _mm512_fmadd_pd(wide, wide, v);
  }
  SG_INLINE void add_squares(Vec x) {
    add_square(_mm512_castps512_ps256(x.v));
    add_square(_mm512_extractf32x8_ps(x.v, 1));
  }
  SG_INLINE void lanes(double* out) const { _mm512_storeu_pd(out, v); }
};

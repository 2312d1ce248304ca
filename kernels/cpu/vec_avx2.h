// The f32 vector of AVX2 with FMA and F16C: 8 lanes. Included by vec.h alone, inside the namespace
// of the instruction set.

struct Mask {
  __m256 m;  // all bits of a lane, or none
};
SG_INLINE Mask operator&(Mask a, Mask b) {
  return {_mm256_and_ps(a.m, b.m)};
}
SG_INLINE Mask operator|(Mask a, Mask b) {
  return {_mm256_or_ps(a.m, b.m)};
}

struct Vec {
  static constexpr int lanes = 8;
  __m256 v;
  Vec() = default;
  SG_INLINE Vec(__m256 x) : v(x) {}
  SG_INLINE Vec(float x) : v(_mm256_set1_ps(x)) {}
};

SG_INLINE Vec operator+(Vec a, Vec b) {
  return _mm256_add_ps(a.v, b.v);
}
SG_INLINE Vec operator-(Vec a, Vec b) {
  return _mm256_sub_ps(a.v, b.v);
}
SG_INLINE Vec operator*(Vec a, Vec b) {
  return _mm256_mul_ps(a.v, b.v);
}
SG_INLINE Vec operator/(Vec a, Vec b) {
  return _mm256_div_ps(a.v, b.v);
}
SG_INLINE Vec operator-(Vec a) {
  return _mm256_xor_ps(a.v, _mm256_set1_ps(-0.0f));
}
SG_INLINE Mask operator<(Vec a, Vec b) {
  return {_mm256_cmp_ps(a.v, b.v, _CMP_LT_OQ)};
}
SG_INLINE Mask operator>(Vec a, Vec b) {
  return {_mm256_cmp_ps(a.v, b.v, _CMP_GT_OQ)};
}
SG_INLINE Mask operator==(Vec a, Vec b) {
  return {_mm256_cmp_ps(a.v, b.v, _CMP_EQ_OQ)};
}
SG_INLINE Mask operator!=(Vec a, Vec b) {
  return {_mm256_cmp_ps(a.v, b.v, _CMP_NEQ_UQ)};
}
SG_INLINE Vec select(Mask c, Vec yes, Vec no) {
  return _mm256_blendv_ps(no.v, yes.v, c.m);
}

SG_INLINE Vec fma(Vec a, Vec b, Vec c) {
  return _mm256_fmadd_ps(a.v, b.v, c.v);
}
SG_INLINE Vec max(Vec a, Vec b) {
  return _mm256_max_ps(a.v, b.v);
}
SG_INLINE Vec min(Vec a, Vec b) {
  return _mm256_min_ps(a.v, b.v);
}
SG_INLINE Vec sqrt(Vec a) {
  return _mm256_sqrt_ps(a.v);
}
SG_INLINE Vec abs(Vec a) {
  return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a.v);
}
SG_INLINE Vec copysign(Vec magnitude, Vec sign) {
  const __m256 bit = _mm256_set1_ps(-0.0f);
  return _mm256_or_ps(_mm256_andnot_ps(bit, magnitude.v), _mm256_and_ps(bit, sign.v));
}
SG_INLINE Vec round(Vec a) {
  return _mm256_round_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
// a · 2^n for integral |n| < 252, rounded once: two exact powers, of which only the second can
// reach a subnormal.
SG_INLINE Vec scale2(Vec a, Vec n) {
  const __m256i whole = _mm256_cvtps_epi32(n.v), half = _mm256_srai_epi32(whole, 1),
                bias = _mm256_set1_epi32(127);
  const __m256i first = _mm256_slli_epi32(_mm256_add_epi32(half, bias), 23);
  const __m256i second =
      _mm256_slli_epi32(_mm256_add_epi32(_mm256_sub_epi32(whole, half), bias), 23);
  return _mm256_mul_ps(_mm256_mul_ps(a.v, _mm256_castsi256_ps(first)), _mm256_castsi256_ps(second));
}
// x = m · 2^e with m in [1, 2) for positive finite x.
SG_INLINE Vec split2(Vec x, Vec& e) {
  const Mask subnormal = x < Vec(1.17549435e-38f);
  const __m256i bits = _mm256_castps_si256(select(subnormal, x * Vec(16777216.0f), x).v);
  const __m256i exponent = _mm256_sub_epi32(_mm256_srli_epi32(bits, 23), _mm256_set1_epi32(127));
  e = Vec(_mm256_cvtepi32_ps(exponent)) - select(subnormal, Vec(24.0f), Vec(0.0f));
  const __m256i mantissa = _mm256_and_si256(bits, _mm256_set1_epi32(0x7fffff));
  return _mm256_castsi256_ps(_mm256_or_si256(mantissa, _mm256_set1_epi32(0x3f800000)));
}

SG_INLINE __m128i to_bf16(Vec x) {
  const __m256i u = _mm256_castps_si256(x.v);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(u, _mm256_set1_epi32(0x7fff)), odd);
  const __m256i quiet = _mm256_or_si256(u, _mm256_set1_epi32(0x400000));
  const __m256i bits =
      _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, _mm256_castps_si256((x != x).m)), 16);
  return _mm_packus_epi32(_mm256_castsi256_si128(bits), _mm256_extracti128_si256(bits, 1));
}
SG_INLINE Vec from_bf16(__m128i bits) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}
SG_INLINE __m128i to_f16(Vec x) {
  return _mm256_cvtps_ph(x.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
SG_INLINE Vec from_f16(__m128i bits) {
  return _mm256_cvtph_ps(bits);
}

// The first n lanes of a vector, 0 < n < lanes; loads give zeros elsewhere.
struct Part {
  int n;
  SG_INLINE explicit Part(int64_t count) : n(static_cast<int>(count)) {}
};
SG_INLINE __m256i bits_of(Part p) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(p.n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
SG_INLINE Mask mask_of(Part p) {
  return {_mm256_castsi256_ps(bits_of(p))};
}
// AVX2 masks no accesses below 32 bits: these go through the stack.
SG_INLINE __m128i load_part(const void* p, int bytes) {
  alignas(16) char lanes[16] = {};
  __builtin_memcpy(lanes, p, static_cast<size_t>(bytes));
  return _mm_load_si128(reinterpret_cast<const __m128i*>(lanes));
}
SG_INLINE void store_part(void* p, __m128i x, int bytes) {
  alignas(16) char lanes[16];
  _mm_store_si128(reinterpret_cast<__m128i*>(lanes), x);
  __builtin_memcpy(p, lanes, static_cast<size_t>(bytes));
}

SG_INLINE Vec load(const float* p, Full) {
  return _mm256_loadu_ps(p);
}
SG_INLINE Vec load(const float* p, Part part) {
  return _mm256_maskload_ps(p, bits_of(part));
}
SG_INLINE Vec load(const bf16* p, Full) {
  return from_bf16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
SG_INLINE Vec load(const bf16* p, Part part) {
  return from_bf16(load_part(p, 2 * part.n));
}
SG_INLINE Vec load(const f16* p, Full) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
SG_INLINE Vec load(const f16* p, Part part) {
  return _mm256_cvtph_ps(load_part(p, 2 * part.n));
}
SG_INLINE void store(float* p, Vec x, Full) {
  _mm256_storeu_ps(p, x.v);
}
SG_INLINE void store(float* p, Vec x, Part part) {
  _mm256_maskstore_ps(p, bits_of(part), x.v);
}
SG_INLINE void store(bf16* p, Vec x, Full) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), to_bf16(x));
}
SG_INLINE void store(bf16* p, Vec x, Part part) {
  store_part(p, to_bf16(x), 2 * part.n);
}
SG_INLINE void store(f16* p, Vec x, Full) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), to_f16(x));
}
SG_INLINE void store(f16* p, Vec x, Part part) {
  store_part(p, to_f16(x), 2 * part.n);
}

SG_INLINE Mask mask_of_bytes(__m128i bytes) {
  return {
      _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_cvtepu8_epi32(bytes), _mm256_setzero_si256()))};
}
SG_INLINE __m128i bytes_of_mask(Mask x) {
  const __m256i ones = _mm256_srli_epi32(_mm256_castps_si256(x.m), 31);
  const __m128i words =
      _mm_packus_epi32(_mm256_castsi256_si128(ones), _mm256_extracti128_si256(ones, 1));
  return _mm_packus_epi16(words, words);
}
SG_INLINE Mask load_mask(const bool* p, Full) {
  return mask_of_bytes(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
}
SG_INLINE Mask load_mask(const bool* p, Part part) {
  return mask_of_bytes(load_part(p, part.n));
}
SG_INLINE void store(bool* p, Mask x, Full) {
  _mm_storel_epi64(reinterpret_cast<__m128i*>(p), bytes_of_mask(x));
}
SG_INLINE void store(bool* p, Mask x, Part part) {
  store_part(p, bytes_of_mask(x), part.n);
}

// out[n] = element n of each of 8 rows.
SG_INLINE void load_columns(const float* rows, int64_t stride, Vec (&out)[4]) {
  __m256 x[4];  // rows n and n + 4
  for (int64_t n = 0; n < 4; ++n) {
    x[n] = _mm256_set_m128(_mm_loadu_ps(rows + (n + 4) * stride), _mm_loadu_ps(rows + n * stride));
  }
  const auto pairs = [](__m256 a, __m256 b) { return _mm256_castps_pd(_mm256_unpacklo_ps(a, b)); };
  const auto high_pairs = [](__m256 a, __m256 b) {
    return _mm256_castps_pd(_mm256_unpackhi_ps(a, b));
  };
  const __m256d low01 = pairs(x[0], x[1]), low23 = pairs(x[2], x[3]);
  const __m256d high01 = high_pairs(x[0], x[1]), high23 = high_pairs(x[2], x[3]);
  out[0] = _mm256_castpd_ps(_mm256_unpacklo_pd(low01, low23));
  out[1] = _mm256_castpd_ps(_mm256_unpackhi_pd(low01, low23));
  out[2] = _mm256_castpd_ps(_mm256_unpacklo_pd(high01, high23));
  out[3] = _mm256_castpd_ps(_mm256_unpackhi_pd(high01, high23));
}

// Over all lanes, always in the same order: halves are folded onto each other.
SG_INLINE float horizontal_sum(Vec x) {
  __m128 q = _mm_add_ps(_mm256_castps256_ps128(x.v), _mm256_extractf128_ps(x.v, 1));
  q = _mm_add_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_add_ss(q, _mm_shuffle_ps(q, q, 1)));
}
SG_INLINE float horizontal_max(Vec x) {
  __m128 q = _mm_max_ps(_mm256_castps256_ps128(x.v), _mm256_extractf128_ps(x.v, 1));
  q = _mm_max_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_max_ss(q, _mm_shuffle_ps(q, q, 1)));
}

// 32-bit unsigned lanes, for Philox.
struct Words {
  __m256i v;
  Words() = default;
  SG_INLINE Words(__m256i x) : v(x) {}
  SG_INLINE explicit Words(uint32_t x) : v(_mm256_set1_epi32(static_cast<int>(x))) {}
};
SG_INLINE Words operator^(Words a, Words b) {
  return _mm256_xor_si256(a.v, b.v);
}
SG_INLINE Words operator+(Words a, Words b) {
  return _mm256_add_epi32(a.v, b.v);
}
SG_INLINE Words load_words(const uint32_t* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}
SG_INLINE void store_words(uint32_t* p, Words x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), x.v);
}
// The lower half of a · factor; the upper half in high.
SG_INLINE Words multiply(Words a, Words factor, Words& high) {
  const __m256i even = _mm256_mul_epu32(a.v, factor.v);
  const __m256i odd = _mm256_mul_epu32(_mm256_srli_epi64(a.v, 32), factor.v);
  high = _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xAA);
  return _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xAA);
}
// Uniform in [0, 1), as random.h's.
SG_INLINE Vec uniform(Words w) {
  return _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_srli_epi32(w.v, 8)),
                       _mm256_set1_ps(5.9604644775390625e-8f));
}

// Eight f64 accumulators: element i of an array adds to lane i mod 8.
struct Sum8 {
  __m256d low = _mm256_setzero_pd(), high = _mm256_setzero_pd();
  SG_INLINE void add_squares(Vec x) {
    const __m256d a = _mm256_cvtps_pd(_mm256_castps256_ps128(x.v)),
                  b = _mm256_cvtps_pd(_mm256_extractf128_ps(x.v, 1));
    low = _mm256_fmadd_pd(a, a, low);
    high = _mm256_fmadd_pd(b, b, high);
  }
  SG_INLINE void lanes(double* out) const {
    _mm256_storeu_pd(out, low);
    _mm256_storeu_pd(out + 4, high);
  }
};

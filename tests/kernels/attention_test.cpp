#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "tests/kernels/arrays.h"

namespace sg::test {
namespace {

enum class MaskKind { none, boolean, added };

struct Case {
  std::string name;
  int64_t b, h, hk, t, s, d;
  bool causal = false;
  MaskKind mask = MaskKind::none;
  float dropout = 0;
  bool packed = false;  // heads lie side by side in rows, (b,t,h,d)
  int64_t window = 0;
};
void PrintTo(const Case& c, std::ostream* out) {
  *out << c.name;
}

const Case cases[] = {
    {"one", 1, 1, 1, 1, 1, 4},
    {"small", 2, 3, 3, 5, 5, 8},
    {"causal", 2, 2, 2, 64, 64, 32, true},
    {"causal_odd", 1, 3, 3, 131, 131, 20, true, MaskKind::none, 0, true},
    {"long_keys", 1, 1, 1, 70, 600, 16},
    {"causal_more_keys", 1, 2, 2, 33, 300, 16, true},
    {"causal_fewer_keys", 1, 2, 2, 90, 40, 16, true},
    {"boolean_mask", 2, 2, 2, 20, 70, 16, false, MaskKind::boolean},
    {"added_mask_causal", 2, 2, 2, 70, 70, 16, true, MaskKind::added, 0, true},
    {"grouped", 2, 6, 2, 40, 40, 16, true, MaskKind::none, 0, true},
    {"one_key_head", 1, 4, 1, 33, 129, 24},
    {"dropout", 2, 2, 2, 35, 35, 16, true, MaskKind::none, 0.3f},
    {"dropout_grouped_mask", 1, 4, 2, 66, 75, 16, false, MaskKind::boolean, 0.5f, true},
    {"wide", 1, 1, 1, 40, 40, 128, true},
    {"three_vectors", 1, 2, 2, 16, 64, 48, true},
    {"whole_tile", 1, 1, 1, 128, 64, 16},
    {"past_whole_tile", 1, 1, 1, 129, 65, 17, false, MaskKind::added},
    {"diagonal_off_panels", 1, 1, 1, 135, 196, 8, true},
    {"block_sees_nothing", 1, 1, 1, 200, 66, 4, true},
    {"five_vectors", 1, 1, 1, 20, 20, 80, true},
    {"two_blocks_masked", 1, 2, 1, 131, 130, 6, true, MaskKind::boolean, 0.25f, true},
    {"in_their_view", 2, 3, 3, 50, 60, 32, true, MaskKind::none, 0, true},
    {"in_view_block_sees_nothing", 1, 2, 2, 200, 40, 16, true, MaskKind::none, 0, true},
    {"window_of_one", 1, 2, 2, 40, 40, 16, true, MaskKind::none, 0, false, 1},
    {"window_in_a_tile", 2, 2, 2, 64, 64, 16, true, MaskKind::none, 0, true, 7},
    {"window_over_tiles", 1, 4, 2, 300, 300, 20, true, MaskKind::none, 0, true, 100},
    {"window_skips_tiles", 1, 2, 1, 400, 400, 8, true, MaskKind::none, 0.2f, false, 33},
    {"window_masked", 1, 2, 2, 140, 300, 6, true, MaskKind::boolean, 0, true, 65},
    {"window_of_late_queries", 1, 1, 1, 5, 400, 16, true, MaskKind::none, 0, false, 70},
    {"window_fewer_keys", 1, 2, 2, 200, 66, 16, true, MaskKind::none, 0, true, 9},
    {"window_of_all", 1, 1, 1, 70, 70, 16, true, MaskKind::none, 0, false, 70},
    {"no_queries", 1, 2, 2, 0, 5, 8},
    {"no_keys", 1, 2, 2, 3, 0, 8},
    {"no_batch", 0, 2, 2, 3, 3, 8},
};

// Several groups of keys a head, whose parts of dq are joined.
const Case grouped_keys[] = {
    {"causal", 1, 12, 4, 640, 700, 32, true, MaskKind::none, 0, true},
    {"masked_dropout", 1, 12, 12, 645, 641, 32, true, MaskKind::boolean, 0.2f},
    {"window", 1, 12, 4, 640, 700, 32, true, MaskKind::none, 0, true, 50},
};

std::vector<int> layout(const Case& c) {
  return c.packed ? std::vector<int>{0, 2, 1, 3} : std::vector<int>{};
}

struct Inputs {
  Array q, k, v, d_out, mask;
  Inputs(const Case& c, DType type)
      : q(type, {c.b, c.h, c.t, c.d}, layout(c)),
        k(type, {c.b, c.hk, c.s, c.d}, layout(c)),
        v(type, {c.b, c.hk, c.s, c.d}, layout(c)),
        d_out(type, {c.b, c.h, c.t, c.d}, layout(c)),
        mask(c.mask == MaskKind::boolean ? DType::boolean : DType::f32, {c.b, 1, c.t, c.s}) {
    q.random(1), k.random(2), v.random(3), d_out.random(4), mask.random(5);
    for (int64_t i = 0; c.mask == MaskKind::boolean && i < mask.numel(); ++i) {
      mask.set(i, i / c.s % c.t != 3 && (i * 2654435761u >> 7) % 3 != 0);  // query 3 sees nothing
    }
  }
};

AttentionOptions options_of(const Case& c, const View& mask) {
  AttentionOptions o;
  o.scale = 1 / std::sqrt(static_cast<float>(c.d));
  o.causal = c.causal;
  o.window = c.window;
  o.mask = c.mask == MaskKind::none ? nullptr : &mask;
  o.dropout = c.dropout;
  o.random = {7, 8, 9, 10};
  return o;
}

struct Results {
  Array out, lse, dq, dk, dv;
  Results(const Case& c, DType type)
      : out(type, {c.b, c.h, c.t, c.d}, layout(c)),
        lse(type == DType::f64 ? DType::f64 : DType::f32, {c.b, c.h, c.t}),
        dq(type, {c.b, c.h, c.t, c.d}, layout(c)),
        dk(type, {c.b, c.hk, c.s, c.d}, layout(c)),
        dv(type, {c.b, c.hk, c.s, c.d}, layout(c)) {
    for (Array* x : all())
      x->fill(NAN);
  }
  std::vector<Array*> all() { return {&out, &lse, &dq, &dk, &dv}; }
};

Results run(const KernelTable& table, const Case& c, DType type, const Inputs& in, int threads) {
  Results r(c, type);
  View mask = in.mask.view();
  mask.strides[1] = 0, mask.shape[1] = c.h;
  const AttentionOptions o = options_of(c, mask);
  const StreamHandle stream{&pool(threads)};
  const Scratch forward(table.attention_workspace(in.q.view(), in.k.view(), false, threads));
  table.attention[type](in.q.view(),
                        in.k.view(),
                        in.v.view(),
                        r.out.view(),
                        r.lse.view(),
                        o,
                        forward.workspace(),
                        stream);
  const Scratch backward(table.attention_workspace(in.q.view(), in.k.view(), true, threads));
  table.attention_backward[type](in.q.view(),
                                 in.k.view(),
                                 in.v.view(),
                                 r.out.view(),
                                 r.lse.view(),
                                 in.d_out.view(),
                                 r.dq.view(),
                                 r.dk.view(),
                                 r.dv.view(),
                                 o,
                                 backward.workspace(),
                                 stream);
  return r;
}

// Factor of an attention weight: 0 where hidden.
double factor(
    const Case& c, const AttentionOptions& o, int64_t b, int64_t h, int64_t i, int64_t j) {
  if (c.dropout == 0)
    return 1;
  const auto element = static_cast<uint64_t>((h * c.t + i) * c.s + j);
  const Philox4 r = draw(o.random, o.random.first_sample + static_cast<uint64_t>(b), element / 4);
  return uniform(r.word[element % 4]) < c.dropout ? 0 : 1 / (1 - static_cast<double>(c.dropout));
}

struct Reference {
  std::vector<double> out, lse, dq, dk, dv;
};

// One query: weights, then gradients, straight from the definition.
void query(const Case& c,
           const Inputs& in,
           const AttentionOptions& o,
           int64_t b,
           int64_t h,
           int64_t i,
           Reference& r) {
  const int64_t kh = h / (c.h / c.hk), row = ((b * c.h + h) * c.t + i) * c.d;
  const auto key = [&](int64_t j) { return ((b * c.hk + kh) * c.s + j) * c.d; };
  std::vector<double> p(c.s), dp(c.s);
  double most = -INFINITY, sum = 0, delta = 0;
  for (int64_t j = 0; j < c.s; ++j) {
    for (int64_t x = 0; x < c.d; ++x)
      p[j] += o.scale * in.q[row + x] * in.k[key(j) + x];
    const double m = c.mask == MaskKind::none ? 0 : in.mask[(b * c.t + i) * c.s + j];
    const bool late = c.causal && j > i + c.s - c.t;
    const bool far = c.window > 0 && j <= i + c.s - c.t - c.window;
    const bool hidden = late || far || (c.mask == MaskKind::boolean && m == 0);
    p[j] = hidden ? -INFINITY : p[j] + (c.mask == MaskKind::added ? m : 0);
    most = std::max(most, p[j]);
  }
  for (double& x : p)
    sum += x = most == -INFINITY ? 0 : std::exp(x - most);
  r.lse[(b * c.h + h) * c.t + i] = most + std::log(sum);
  if (sum == 0)
    return;
  for (int64_t j = 0; j < c.s; ++j) {
    p[j] /= sum;
    const double f = factor(c, o, b, h, i, j);
    for (int64_t x = 0; x < c.d; ++x) {
      r.out[row + x] += p[j] * f * in.v[key(j) + x];
      r.dv[key(j) + x] += p[j] * f * in.d_out[row + x];
      dp[j] += f * in.d_out[row + x] * in.v[key(j) + x];
    }
    delta += p[j] * dp[j];
  }
  for (int64_t j = 0; j < c.s; ++j) {
    for (int64_t x = 0; x < c.d; ++x) {
      r.dq[row + x] += o.scale * p[j] * (dp[j] - delta) * in.k[key(j) + x];
      r.dk[key(j) + x] += o.scale * p[j] * (dp[j] - delta) * in.q[row + x];
    }
  }
}

Reference reference(const Case& c, const Inputs& in) {
  const auto queries = static_cast<size_t>(c.b * c.h * c.t),
             keys = static_cast<size_t>(c.b * c.hk * c.s);
  const auto d = static_cast<size_t>(c.d);
  Reference r{std::vector<double>(queries * d),
              std::vector<double>(queries),
              std::vector<double>(queries * d),
              std::vector<double>(keys * d),
              std::vector<double>(keys * d)};
  const AttentionOptions o = options_of(c, in.mask.view());
  for (int64_t b = 0; b < c.b; ++b) {
    for (int64_t h = 0; h < c.h; ++h) {
      for (int64_t i = 0; i < c.t; ++i)
        query(c, in, o, b, h, i, r);
    }
  }
  return r;
}

void expect_near(const Array& x,
                 const std::vector<double>& expected,
                 double tolerance,
                 const std::string& what) {
  double worst = 0;
  int64_t at = 0;
  for (int64_t i = 0; i < x.numel(); ++i) {
    if (x[i] == expected[i])
      continue;  // −∞ too
    const double error = std::fabs(x[i] - expected[i]);
    if (!(error <= worst))
      worst = std::isnan(error) ? INFINITY : error, at = i;
  }
  EXPECT_LE(worst, tolerance) << what << " at " << at << ": " << x[at] << " for " << expected[at];
}

class Attention : public testing::TestWithParam<std::tuple<Case, DType>> {};

TEST_P(Attention, AgreesWithF64AndNeverDependsOnThreads) {
  const auto& [c, type] = GetParam();
  const Inputs in(c, type);
  const Reference expected = reference(c, in);
  const double tolerance = 8 * epsilon(type);
  for (const KernelTable* table : tables()) {
    Results r = run(*table, c, type, in, 1);
    expect_near(r.out, expected.out, tolerance, std::string(table->name) + " out");
    expect_near(
        r.lse, expected.lse, type == DType::f64 ? 1e-12 : 2e-5, std::string(table->name) + " lse");
    expect_near(r.dq, expected.dq, tolerance, std::string(table->name) + " dq");
    expect_near(r.dk, expected.dk, tolerance, std::string(table->name) + " dk");
    expect_near(r.dv, expected.dv, tolerance, std::string(table->name) + " dv");
    for (const int threads : {2, 3}) {
      Results other = run(*table, c, type, in, threads);
      for (size_t i = 0; i < r.all().size(); ++i)
        EXPECT_TRUE(r.all()[i]->same_bits(*other.all()[i])) << threads << " " << i;
    }
  }
}

std::string name_of_case(const testing::TestParamInfo<Attention::ParamType>& info) {
  return std::get<0>(info.param).name + "_" + name_of(std::get<1>(info.param));
}
INSTANTIATE_TEST_SUITE_P(KeyGroups,
                         Attention,
                         testing::Combine(testing::ValuesIn(grouped_keys),
                                          testing::Values(DType::f32)),
                         name_of_case);
INSTANTIATE_TEST_SUITE_P(
    Shapes,
    Attention,
    testing::Combine(testing::ValuesIn(cases),
                     testing::Values(DType::f32, DType::f64, DType::f16, DType::bf16)),
    name_of_case);

}  // namespace
}  // namespace sg::test

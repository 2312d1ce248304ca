#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "tests/kernels/arrays.h"

namespace sg::test {
namespace {

struct Case {
  std::string name;
  int64_t rows, c, v;
  bool wide_gradient = false;  // d_weight f32 for 16-bit weights
  bool i32_targets = false;
};
void PrintTo(const Case& c, std::ostream* out) {
  *out << c.name;
}

const Case cases[] = {
    {"one", 1, 1, 1},
    {"odd", 7, 5, 13},
    {"characters", 96, 32, 65, false, true},
    {"one_tile", 40, 16, 48},
    {"tiles", 33, 16, 1000, true},
    {"groups", 20, 8, 9001},
    {"no_rows", 0, 8, 20},
};
// Two chunks of rows.
const Case chunks{"chunks", 257, 2, 98500}, chunks_wide{"chunks_wide", 257, 2, 98500, true};

struct Inputs {
  Array x, weight, targets;
  Inputs(const Case& c, DType type)
      : x(type, {c.rows, c.c}),
        weight(type, {c.v, c.c}),
        targets(c.i32_targets ? DType::i32 : DType::i64, {c.rows}) {
    x.random(1), weight.random(2);
    for (int64_t i = 0; i < c.rows; ++i)
      targets.set(i, i % 5 == 3 ? -1 : static_cast<double>(i * 7919 % c.v));
  }
};

struct Results {
  Array losses, dx, d_weight;
  Results(const Case& c, DType type)
      : losses(type == DType::f64 ? DType::f64 : DType::f32, {c.rows}),
        dx(type, {c.rows, c.c}),
        d_weight(c.wide_gradient && type != DType::f64 ? DType::f32 : type, {c.v, c.c}) {
    losses.fill(NAN), dx.fill(NAN), d_weight.fill(NAN);
  }
};

constexpr float scale = 0.25f;

Results run(const KernelTable& table,
            const Case& c,
            DType type,
            const Inputs& in,
            int threads,
            bool backward = true) {
  Results r(c, type);
  const Scratch scratch(
      table.classifier_workspace(in.x.view(), in.weight.view(), backward, threads));
  const View none;
  table.classifier[type](in.x.view(),
                         in.weight.view(),
                         in.targets.view(),
                         r.losses.view(),
                         backward ? r.dx.view() : none,
                         backward ? r.d_weight.view() : none,
                         scale,
                         scratch.workspace(),
                         {&pool(threads)});
  return r;
}

struct Reference {
  std::vector<double> losses, dx, d_weight;
};

Reference reference(const Case& c, const Inputs& in) {
  std::vector<double> x(in.x.numel()), w(in.weight.numel()), p(c.v);
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = in.x[i];
  for (size_t i = 0; i < w.size(); ++i)
    w[i] = in.weight[i];
  Reference r{
      std::vector<double>(c.rows), std::vector<double>(x.size()), std::vector<double>(w.size())};
  for (int64_t i = 0; i < c.rows; ++i) {
    const auto target = static_cast<int64_t>(in.targets[i]);
    if (target < 0)
      continue;
    double most = -INFINITY, sum = 0;
    for (int64_t j = 0; j < c.v; ++j) {
      p[j] = 0;
      for (int64_t d = 0; d < c.c; ++d)
        p[j] += x[i * c.c + d] * w[j * c.c + d];
      most = std::max(most, p[j]);
    }
    for (const double logit : p)
      sum += std::exp(logit - most);
    r.losses[i] = most + std::log(sum) - p[target];
    for (int64_t j = 0; j < c.v; ++j) {
      const double g = scale * (std::exp(p[j] - most) / sum - (j == target));
      for (int64_t d = 0; d < c.c; ++d) {
        r.dx[i * c.c + d] += g * w[j * c.c + d];
        r.d_weight[j * c.c + d] += g * x[i * c.c + d];
      }
    }
  }
  return r;
}

void expect_near(const Array& x,
                 const std::vector<double>& expected,
                 double tolerance,
                 const std::string& what) {
  double worst = 0;
  for (int64_t i = 0; i < x.numel(); ++i) {
    const double error = std::fabs(x[i] - expected[i]);
    worst = std::isnan(error) ? INFINITY : std::max(worst, error);
  }
  EXPECT_LE(worst, tolerance) << what;
}

class Classifier : public testing::TestWithParam<std::tuple<Case, DType>> {};

TEST_P(Classifier, AgreesWithF64AndNeverDependsOnThreads) {
  const auto& [c, type] = GetParam();
  const Inputs in(c, type);
  const Reference expected = reference(c, in);
  const double tolerance = 4 * epsilon(type);
  for (const KernelTable* table : tables()) {
    const Results r = run(*table, c, type, in, 1);
    expect_near(r.losses,
                expected.losses,
                type == DType::f64 ? 1e-11 : 5e-5,
                std::string(table->name) + " losses");
    expect_near(r.dx, expected.dx, tolerance, std::string(table->name) + " dx");
    expect_near(r.d_weight, expected.d_weight, tolerance, std::string(table->name) + " d_weight");
    EXPECT_TRUE(r.losses.same_bits(run(*table, c, type, in, 1, false).losses)) << "evaluation";
    for (const int threads : {2, 3}) {
      const Results other = run(*table, c, type, in, threads);
      EXPECT_TRUE(r.losses.same_bits(other.losses) && r.dx.same_bits(other.dx) &&
                  r.d_weight.same_bits(other.d_weight))
          << threads << " threads";
    }
  }
}

std::string name_of_case(const testing::TestParamInfo<Classifier::ParamType>& info) {
  return std::get<0>(info.param).name + "_" + name_of(std::get<1>(info.param));
}
INSTANTIATE_TEST_SUITE_P(
    Shapes,
    Classifier,
    testing::Combine(testing::ValuesIn(cases),
                     testing::Values(DType::f32, DType::f64, DType::f16, DType::bf16)),
    name_of_case);
INSTANTIATE_TEST_SUITE_P(Chunks,
                         Classifier,
                         testing::Values(std::tuple{chunks, DType::f32},
                                         std::tuple{chunks, DType::bf16},
                                         std::tuple{chunks_wide, DType::f16}),
                         name_of_case);

class CrossEntropy : public testing::TestWithParam<std::tuple<int64_t, DType>> {};

TEST_P(CrossEntropy, AgreesWithF64AndNeverDependsOnThreads) {
  const auto& [n, type] = GetParam();
  const int64_t rows = 11;
  Array logits(type, {rows, n}), targets(DType::i32, {rows});
  logits.random(1, 3);
  for (int64_t i = 0; i < rows; ++i)
    targets.set(i, i == 4 ? -1 : static_cast<double>(i * 31 % n));
  std::vector<double> losses(rows), gradient(rows * n);
  for (int64_t i = 0; i < rows; ++i) {
    const auto target = static_cast<int64_t>(targets[i]);
    if (target < 0)
      continue;
    double sum = 0;
    for (int64_t j = 0; j < n; ++j)
      sum += std::exp(logits[i * n + j]);
    losses[i] = std::log(sum) - logits[i * n + target];
    for (int64_t j = 0; j < n; ++j)
      gradient[i * n + j] = scale * (std::exp(logits[i * n + j]) / sum - (j == target));
  }
  for (const KernelTable* table : tables()) {
    for (const int threads : {1, 2, 3}) {
      Array result(type == DType::f64 ? DType::f64 : DType::f32, {rows}),
          again(result.view().dtype, {rows});
      Array in_place(type, {rows, n}), apart(type, {rows, n});
      in_place.random(1, 3), apart.fill(NAN);
      const StreamHandle stream{&pool(threads)};
      table->cross_entropy[type](
          logits.view(), targets.view(), result.view(), apart.view(), scale, stream);
      table->cross_entropy[type](
          in_place.view(), targets.view(), again.view(), in_place.view(), scale, stream);
      expect_near(result, losses, 2 * epsilon(type == DType::f64 ? type : DType::f32), table->name);
      expect_near(apart, gradient, epsilon(type), table->name);
      EXPECT_TRUE(result.same_bits(again) && apart.same_bits(in_place)) << threads;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Widths,
    CrossEntropy,
    testing::Combine(testing::Values(1, 5, 65, 1000, 20001),
                     testing::Values(DType::f32, DType::f64, DType::f16, DType::bf16)));

}  // namespace
}  // namespace sg::test

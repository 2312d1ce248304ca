#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "tests/kernels/arrays.h"

namespace sg::test {
namespace {

double cdf(double x) {
  return 0.5 * (1 + std::erf(x / std::sqrt(2.0)));
}
double density(double x) {
  return std::exp(-0.5 * x * x) / std::sqrt(2 * M_PI);
}
double logistic(double x) {
  return 1 / (1 + std::exp(-x));
}
double gelu_tanh(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}
double gelu_tanh_slope(double x) {
  const double c = std::sqrt(2 / M_PI), t = std::tanh(c * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * c * (1 + 3 * 0.044715 * x * x);
}

struct Case {
  PointwiseOp op;
  std::function<double(double, double, double)> reference;  // of the inputs, then the scalar
  bool positive = false;                                    // inputs lie in [0.1, ∞)
};

constexpr double scalar = 1.5;
const Case cases[] = {
    {PointwiseOp::add, [](double a, double b, double) { return a + b; }},
    {PointwiseOp::sub, [](double a, double b, double) { return a - b; }},
    {PointwiseOp::mul, [](double a, double b, double) { return a * b; }},
    {PointwiseOp::div, [](double a, double b, double) { return a / b; }, true},
    {PointwiseOp::maximum, [](double a, double b, double) { return std::max(a, b); }},
    {PointwiseOp::minimum, [](double a, double b, double) { return std::min(a, b); }},
    {PointwiseOp::add_scalar, [](double a, double, double) { return a + scalar; }},
    {PointwiseOp::mul_scalar, [](double a, double, double) { return a * scalar; }},
    {PointwiseOp::pow_scalar, [](double a, double, double) { return std::pow(a, scalar); }, true},
    {PointwiseOp::neg, [](double a, double, double) { return -a; }},
    {PointwiseOp::abs, [](double a, double, double) { return std::abs(a); }},
    {PointwiseOp::exp, [](double a, double, double) { return std::exp(a); }},
    {PointwiseOp::log, [](double a, double, double) { return std::log(a); }, true},
    {PointwiseOp::sqrt, [](double a, double, double) { return std::sqrt(a); }, true},
    {PointwiseOp::rsqrt, [](double a, double, double) { return 1 / std::sqrt(a); }, true},
    {PointwiseOp::tanh, [](double a, double, double) { return std::tanh(a); }},
    {PointwiseOp::sigmoid, [](double a, double, double) { return logistic(a); }},
    {PointwiseOp::relu, [](double a, double, double) { return std::max(a, 0.0); }},
    {PointwiseOp::gelu, [](double a, double, double) { return a * cdf(a); }},
    {PointwiseOp::gelu_tanh, [](double a, double, double) { return gelu_tanh(a); }},
    {PointwiseOp::silu, [](double a, double, double) { return a * logistic(a); }},
    {PointwiseOp::relu_backward, [](double a, double b, double) { return a > 0 ? b : 0; }},
    {PointwiseOp::gelu_backward,
     [](double a, double b, double) { return b * (cdf(a) + a * density(a)); }},
    {PointwiseOp::gelu_tanh_backward,
     [](double a, double b, double) { return b * gelu_tanh_slope(a); }},
    {PointwiseOp::silu_backward,
     [](double a, double b, double) { return b * logistic(a) * (1 + a * (1 - logistic(a))); }},
    {PointwiseOp::tanh_backward, [](double a, double b, double) { return b * (1 - a * a); }},
    {PointwiseOp::sigmoid_backward, [](double a, double b, double) { return b * a * (1 - a); }},
    {PointwiseOp::mul_add, [](double a, double b, double c) { return a * b + c; }},
    {PointwiseOp::silu_gate, [](double a, double b, double) { return a * logistic(a) * b; }},
    {PointwiseOp::silu_gate_backward,
     [](double a, double b, double c) {
       return logistic(a) * (1 + a * (1 - logistic(a))) * b * c;
     }},
    {PointwiseOp::less, [](double a, double b, double) { return a < b; }},
    {PointwiseOp::equal, [](double a, double b, double) { return a == b; }},
    {PointwiseOp::where, [](double a, double b, double c) { return a != 0 ? b : c; }},
};

struct Layout {
  std::vector<int64_t> shape;
  std::vector<int> inputs = {}, out = {};  // order of dimensions in memory
  int64_t gap = 0;
};
const Layout layouts[] = {
    {{}},
    {{0}},
    {{4, 0, 3}},
    {{1}},
    {{7}},
    {{16}},
    {{33}},
    {{70001}},  // several tasks and a rest
    {{5, 3, 11}, {2, 0, 1}},
    {{6, 9, 4}, {0, 1, 2}, {1, 2, 0}},
    {{3, 40}, {0, 1}, {0, 1}, 5},
    {{2, 3, 2, 2, 3, 5}, {5, 3, 1, 0, 2, 4}},
};

Array input(DType type, const Layout& layout, uint32_t seed, bool positive) {
  Array x(type, layout.shape, layout.inputs, layout.gap);
  x.random(seed, type == DType::boolean ? 0 : is_float(type) ? 1.5 : 40);
  for (int64_t i = 0; i < x.numel(); ++i) {
    if (type == DType::boolean)
      x.set(i, (i * 2654435761u + seed) >> 7 & 1);
    else if (positive || type == DType::u8)
      x.set(i, std::abs(x[i]) + 0.1);
  }
  return x;
}

// The inputs of one dtype and layout that every op takes its own from: their making takes longer
// than the ops.
struct Inputs {
  std::vector<Array> any, positive;
  Array condition;
  Inputs(DType type, const Layout& layout) : condition(input(DType::boolean, layout, 7, false)) {
    for (int k = 0; k < 3; ++k) {
      any.push_back(input(type, layout, 7 + k, false));
      positive.push_back(input(type, layout, 7 + k, true));
    }
  }
  std::vector<const Array*> of(const Case& c) const {
    std::vector<const Array*> in;
    for (int k = 0; k < inputs_of(c.op); ++k)
      in.push_back(&(c.positive ? positive : any)[k]);
    if (c.op == PointwiseOp::where)
      in[0] = &condition;
    return in;
  }
};

std::vector<double> reference(const Case& c, DType result, const std::vector<const Array*>& in) {
  std::vector<double> want(in[0]->numel());
  Array wrapped(result, {1});
  for (size_t i = 0; i < want.size(); ++i) {
    want[i] =
        c.reference((*in[0])[i], in.size() > 1 ? (*in[1])[i] : 0, in.size() > 2 ? (*in[2])[i] : 0);
    if (is_float(result))
      continue;
    wrapped.set(
        0, static_cast<double>(static_cast<int64_t>(want[i]) & (result == DType::u8 ? 255 : -1)));
    want[i] = wrapped[0];
  }
  return want;
}

void check(const Case& c, DType type, const Layout& layout, const Inputs& inputs) {
  const DType result = gives_boolean(c.op) ? DType::boolean : type;
  const std::vector<const Array*> in = inputs.of(c);
  const std::vector<double> want = reference(c, result, in);
  std::vector<View> views;
  for (const Array* x : in)
    views.push_back(x->view());
  for (const KernelTable* table : tables()) {
    SCOPED_TRACE(std::string(table->name) + " " + name_of(c.op) + " " + name_of(type));
    std::vector<Array> outs;
    for (int threads : {1, 2, 3}) {
      Array& out = outs.emplace_back(result, layout.shape, layout.out, layout.gap);
      table->pointwise[type](c.op, views.data(), out.view(), scalar, {&pool(threads)});
      ASSERT_TRUE(out.same_bits(outs[0])) << threads << " threads";
    }
    for (size_t i = 0; i < want.size(); ++i) {
      const double got = outs[0][i], tolerance = epsilon(type) * std::max(1.0, std::abs(want[i]));
      if (!(std::abs(got - want[i]) <= tolerance))
        FAIL() << "element " << i << ": " << got << " for " << want[i];
    }
  }
}

TEST(Pointwise, MatchesTheReferenceInEveryDtypeAndLayout) {
  for (DType type : {DType::f32,
                     DType::f64,
                     DType::f16,
                     DType::bf16,
                     DType::i32,
                     DType::i64,
                     DType::u8,
                     DType::boolean}) {
    for (const Layout& layout : layouts) {
      const Inputs inputs(type, layout);
      for (const Case& c : cases) {
        const bool scalar_of_integer =
            !is_float(type) && has_scalar(c.op);  // see ScalarsOfIntegersAreTruncated
        if (supports(c.op, type) && !scalar_of_integer)
          check(c, type, layout, inputs);
      }
    }
  }
}

TEST(Pointwise, EveryOpHasARow) {
  for (int op = 0; op <= static_cast<int>(PointwiseOp::where); ++op) {
    EXPECT_TRUE(std::ranges::any_of(cases, [&](const Case& c) {
      return static_cast<int>(c.op) == op;
    })) << op;
  }
}

TEST(Pointwise, ScalarsOfIntegersAreTruncated) {
  for (const KernelTable* table : tables()) {
    Array x(DType::i32, {3}), y(DType::i32, {3});
    x.fill(7);
    table->pointwise.i32(PointwiseOp::mul_scalar, &x.view(), y.view(), -3.9, {});
    EXPECT_EQ(y[2], -21);
  }
}

// Row, column and scalar broadcasts, of a dense and of a transposed operand.
TEST(Pointwise, BroadcastsByStridesOfZero) {
  const int64_t rows = 37, columns = 53;
  for (const KernelTable* table : tables()) {
    for (DType type : {DType::f32, DType::bf16, DType::f64, DType::i64}) {
      for (const std::vector<int>& order : {std::vector<int>{0, 1}, std::vector<int>{1, 0}}) {
        Array a(type, {rows, columns}, order), b(type, {rows, columns});
        a.random(1, 9), b.random(2, 9);
        for (int kept = 0; kept < 4; ++kept) {
          View small = b.view();
          for (int d = 0; d < 2; ++d) {
            if (!(kept >> d & 1))
              small.strides[d] = 0;
          }
          const View in[2] = {a.view(), small};
          Array y(type, {rows, columns});
          table->pointwise[type](PointwiseOp::add, in, y.view(), 0, {&pool(2)});
          for (int64_t i = 0; i < rows * columns; ++i) {
            const double want =
                a[i] + b[(kept & 1 ? i / columns * columns : 0) + (kept & 2 ? i % columns : 0)];
            ASSERT_NEAR(y[i], want, epsilon(type) * std::max(1.0, std::abs(want)));
          }
        }
      }
    }
  }
}

TEST(Pointwise, FunctionsAreAccurateOverTheirWholeRange) {
  struct Range {
    PointwiseOp op;
    double (*reference)(double);
    double low, high;
  };
  const Range ranges[] = {
      {PointwiseOp::exp, [](double x) { return std::exp(x); }, -87, 88.7},
      {PointwiseOp::log, [](double x) { return std::log(x); }, 1e-38, 1e3},
      {PointwiseOp::tanh, [](double x) { return std::tanh(x); }, -12, 12},
      {PointwiseOp::sigmoid, logistic, -80, 80},
      {PointwiseOp::gelu, [](double x) { return x * cdf(x); }, -1, 9},
  };
  const int64_t n = 100003;
  for (const KernelTable* table : tables()) {
    for (const Range& r : ranges) {
      Array x(DType::f32, {n}), y(DType::f32, {n});
      for (int64_t i = 0; i < n; ++i)
        x.set(i, r.low + (r.high - r.low) * static_cast<double>(i) / n);
      table->pointwise.f32(r.op, &x.view(), y.view(), 0, {});
      for (int64_t i = 0; i < n; ++i) {
        const double want = r.reference(x[i]);
        ASSERT_NEAR(y[i], want, 4e-7 * std::abs(want))
            << table->name << " " << name_of(r.op) << " of " << x[i];
      }
    }
  }
}

TEST(Pointwise, InfinitiesAndNansPass) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::nan("");
  struct Point {
    PointwiseOp op;
    double x, want;
  };
  const Point points[] = {
      {PointwiseOp::exp, inf, inf},
      {PointwiseOp::exp, -inf, 0},
      {PointwiseOp::exp, nan, nan},
      {PointwiseOp::exp, 89, inf},
      {PointwiseOp::log, 0, -inf},
      {PointwiseOp::log, -1, nan},
      {PointwiseOp::log, inf, inf},
      {PointwiseOp::log, nan, nan},
      {PointwiseOp::tanh, -inf, -1},
      {PointwiseOp::tanh, nan, nan},
      {PointwiseOp::relu, nan, nan},
      {PointwiseOp::sigmoid, -inf, 0},
      {PointwiseOp::gelu, nan, nan},
      {PointwiseOp::gelu, inf, inf},
  };
  for (const KernelTable* table : tables()) {
    for (DType type : {DType::f32, DType::f64, DType::f16, DType::bf16}) {
      for (const Point& p : points) {
        if (p.x == 89 && type != DType::f32)
          continue;
        Array x(type, {5}), y(type, {5});
        x.fill(p.x);
        table->pointwise[type](p.op, &x.view(), y.view(), 0, {});
        if (std::isnan(p.want))
          EXPECT_TRUE(std::isnan(y[3])) << name_of(p.op) << " " << name_of(type) << " of " << p.x;
        else
          EXPECT_EQ(y[3], p.want) << name_of(p.op) << " " << name_of(type) << " of " << p.x;
      }
    }
    Array a(DType::f32, {3}), b(DType::f32, {3}), y(DType::f32, {3});
    a.set(0, nan), b.set(1, nan);
    const View in[2] = {a.view(), b.view()};
    table->pointwise.f32(PointwiseOp::maximum, in, y.view(), 0, {});
    EXPECT_TRUE(std::isnan(y[0]) && std::isnan(y[1]) && y[2] == 0);
  }
}

}  // namespace
}  // namespace sg::test

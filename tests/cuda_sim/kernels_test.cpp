// The backend's kernels on the software device, through the table, against f64 references.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "kernels/table.h"
#include "tests/cuda_sim/random.h"
#include "tests/cuda_sim/software_device.h"
#include "tests/cuda_sim/views.h"

namespace {

using sg::bf16, sg::f16, sg::PointwiseOp, sg::View;
using simt::device_view, simt::Order, simt::values;
using Values = std::vector<double>;

const sg::KernelTable& table = *sg::cuda_kernels();
const View absent;

template <class T>
constexpr double tolerance = sizeof(T) == 8           ? 1e-13
                             : sizeof(T) == 4         ? 4e-6
                             : std::is_same_v<T, f16> ? 1e-3
                                                      : 8e-3;

// What T makes of x.
template <class T>
double round_to(double x) {
  if constexpr (sizeof(T) == 2)
    return static_cast<float>(T(static_cast<float>(x)));
  else
    return static_cast<T>(x);
}

template <class T>
Values random_values(int64_t count, double low, double high, uint64_t seed) {
  simt::Random random(seed);
  Values result(static_cast<size_t>(count));
  for (double& x : result)
    x = round_to<T>(low + (high - low) * static_cast<double>(random.below(100000)) / 100000);
  return result;
}

template <class T>
void expect_close(const Values& found, const Values& expected, const std::string& what) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  for (size_t i = 0; i < found.size(); ++i)
    ASSERT_NEAR(found[i], expected[i], tolerance<T> * (1 + std::abs(expected[i])))
        << what << ", element " << i;
}

// The order of threads, and which of the two ways to switch between them.
struct Way {
  const char* name;
  Order order;
  bool portable_switch = false;
};
void PrintTo(const Way& way, std::ostream* out) {
  *out << way.name;
}
const Way ways[] = {{"Forward", Order::forward},
                    {"Reverse", Order::reverse},
                    {"Random", Order::random},
                    {"RandomPortable", Order::random, true}};

class OnSim : public testing::TestWithParam<Way> {
 protected:
  void SetUp() override {
    simt::reset(
        {.order = GetParam().order, .seed = 7, .portable_switch = GetParam().portable_switch});
  }
  void TearDown() override { EXPECT_EQ(simt::take_faults(), std::vector<std::string>{}); }
};
INSTANTIATE_TEST_SUITE_P(Orders, OnSim, testing::ValuesIn(ways), [](const auto& way) {
  return way.param.name;
});

// ---- pointwise ----

double reference(PointwiseOp op, double a, double b, double c, double s) {
  const double gate = 1 / (1 + std::exp(-a)), cdf = 0.5 * (1 + std::erf(a / std::sqrt(2.0)));
  const double density = std::exp(-a * a / 2) / std::sqrt(2 * M_PI);
  const double u = std::sqrt(2 / M_PI) * (a + 0.044715 * a * a * a),
               du = std::sqrt(2 / M_PI) * (1 + 3 * 0.044715 * a * a);
  const double t = std::tanh(u);
  switch (op) {
    case PointwiseOp::add: return a + b;
    case PointwiseOp::sub: return a - b;
    case PointwiseOp::mul: return a * b;
    case PointwiseOp::div: return a / b;
    case PointwiseOp::maximum: return std::max(a, b);
    case PointwiseOp::minimum: return std::min(a, b);
    case PointwiseOp::add_scalar: return a + s;
    case PointwiseOp::mul_scalar: return a * s;
    case PointwiseOp::pow_scalar: return std::pow(a, s);
    case PointwiseOp::neg: return -a;
    case PointwiseOp::abs: return std::abs(a);
    case PointwiseOp::exp: return std::exp(a);
    case PointwiseOp::log: return std::log(a);
    case PointwiseOp::sqrt: return std::sqrt(a);
    case PointwiseOp::rsqrt: return 1 / std::sqrt(a);
    case PointwiseOp::tanh: return std::tanh(a);
    case PointwiseOp::sigmoid: return gate;
    case PointwiseOp::relu: return std::max(a, 0.0);
    case PointwiseOp::gelu: return a * cdf;
    case PointwiseOp::gelu_tanh: return 0.5 * a * (1 + t);
    case PointwiseOp::silu: return a * gate;
    case PointwiseOp::relu_backward: return a > 0 ? b : 0;
    case PointwiseOp::gelu_backward: return (cdf + a * density) * b;
    case PointwiseOp::gelu_tanh_backward: return (0.5 * (1 + t) + 0.5 * a * (1 - t * t) * du) * b;
    case PointwiseOp::silu_backward: return gate * (1 + a * (1 - gate)) * b;
    case PointwiseOp::tanh_backward: return (1 - a * a) * b;
    case PointwiseOp::sigmoid_backward: return a * (1 - a) * b;
    case PointwiseOp::mul_add: return a * b + c;
    case PointwiseOp::less: return a < b;
    case PointwiseOp::equal: return a == b;
    case PointwiseOp::where: return a != 0 ? b : c;
    case PointwiseOp::silu_gate: return a * gate * b;
    case PointwiseOp::silu_gate_backward: return gate * (1 + a * (1 - gate)) * b * c;
  }
  return NAN;
}

const PointwiseOp all_ops[] = {
#define SG_OP(name, inputs) PointwiseOp::name,
    SG_POINTWISE_OPS(SG_OP)
#undef SG_OP
};

template <class T>
void check_op(PointwiseOp op, int64_t n) {
  const bool positive = op == PointwiseOp::log || op == PointwiseOp::sqrt ||
                        op == PointwiseOp::rsqrt || op == PointwiseOp::pow_scalar;
  Values a = random_values<T>(n, positive ? 0.25 : -3, 3, 1);
  Values b = random_values<T>(n, 0.5, 2, 2), c = random_values<T>(n, -1, 1, 3);
  for (int64_t i = 0; i < n; i += 3)
    b[static_cast<size_t>(i)] = a[static_cast<size_t>(i)];  // some are equal
  if (op == PointwiseOp::where)
    for (double& x : a)
      x = x > 0;
  if (op == PointwiseOp::div)
    for (double& x : b)
      x = x < 0 ? x - 1 : x + 1;
  const double scalar = 1.5;
  const View inputs[] = {
      op == PointwiseOp::where ? device_view<bool>({n}, a) : device_view<T>({n}, a),
      device_view<T>({n}, b),
      device_view<T>({n}, c)};
  const bool boolean = sg::gives_boolean(op);
  const View out = boolean ? device_view<bool>({n}) : device_view<T>({n});
  table.pointwise[sg::dtype_of<T>](op, inputs, out, scalar, {});
  Values expected;
  for (size_t i = 0; i < a.size(); ++i)
    expected.push_back(reference(op, a[i], b[i], c[i], scalar));
  expect_close<T>(boolean ? values<bool>(out) : values<T>(out), expected, sg::name_of(op));
}

TEST_P(OnSim, EveryPointwiseOpIsRightInEveryFloatType) {
  for (const PointwiseOp op : all_ops) {
    check_op<float>(op, 1);
    check_op<float>(op, 300);  // one block of 256 threads and a tail
    check_op<double>(op, 33);
    check_op<f16>(op, 65);
    check_op<bf16>(op, 65);
  }
}

TEST_P(OnSim, PointwiseOpsOnIntegersAreExact) {
  const Values a = {1, -2, 3, 1 << 30}, b = {4, 5, -6, 1};
  const View inputs[] = {device_view<int32_t>({4}, a), device_view<int32_t>({4}, b)};
  const View out = device_view<int32_t>({4});
  table.pointwise.i32(PointwiseOp::add, inputs, out, 0, {});
  EXPECT_EQ(values<int32_t>(out), (Values{5, 3, -3, (1 << 30) + 1}));
  table.pointwise.i32(PointwiseOp::mul, inputs, out, 0, {});
  EXPECT_EQ(values<int32_t>(out), (Values{4, -10, -18, 1 << 30}));
}

// (2,3,5) = transposed (5,3,2) · row broadcast over everything.
TEST_P(OnSim, PointwiseWalksStridesAndBroadcasts) {
  const Values a = random_values<float>(30, -1, 1, 1), b = random_values<float>(5, -1, 1, 2);
  View inputs[] = {device_view<float>({5, 3, 2}, a), device_view<float>({1, 1, 5}, b)};
  inputs[0].shape[0] = 2, inputs[0].shape[2] = 5;
  std::swap(inputs[0].strides[0], inputs[0].strides[2]);
  inputs[1].shape[0] = 2, inputs[1].shape[1] = 3;
  inputs[1].strides[0] = inputs[1].strides[1] = 0;
  const View out = device_view<float>({2, 3, 5});
  table.pointwise.f32(PointwiseOp::mul, inputs, out, 0, {});
  Values expected;
  for (size_t i = 0; i < 2; ++i)
    for (size_t j = 0; j < 3; ++j)
      for (size_t k = 0; k < 5; ++k)
        expected.push_back(a[i + 2 * j + 6 * k] * b[k]);
  expect_close<float>(values<float>(out), expected, "mul");
}

TEST_P(OnSim, PointwiseOfNothingDoesNothing) {
  const View inputs[] = {device_view<float>({0, 3}), device_view<float>({0, 3})};
  table.pointwise.f32(PointwiseOp::add, inputs, device_view<float>({0, 3}), 0, {});
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

// ---- layernorm ----

struct Norm {
  Values sum, y, mean, rstd;
};

template <class T>
Norm reference_norm(const Values& x,
                    const Values& residual,
                    const Values& gain,
                    const Values& bias,
                    size_t rows,
                    size_t n) {
  Norm r;
  for (size_t i = 0; i < rows; ++i) {
    double mean = 0, variance = 0;
    for (size_t j = i * n; j < (i + 1) * n; ++j) {
      r.sum.push_back(residual.empty() ? x[j] : round_to<T>(x[j] + residual[j]));
      mean += r.sum[j] / static_cast<double>(n);
    }
    for (size_t j = i * n; j < (i + 1) * n; ++j)
      variance += (r.sum[j] - mean) * (r.sum[j] - mean) / static_cast<double>(n);
    r.mean.push_back(mean);
    r.rstd.push_back(1 / std::sqrt(variance + 1e-5));
    for (size_t j = 0; j < n; ++j)
      r.y.push_back((r.sum[i * n + j] - mean) * r.rstd[i] * gain[j] + (bias.empty() ? 0 : bias[j]));
  }
  return r;
}

template <class T>
void check_layernorm(int64_t rows, int64_t n, bool with_residual, bool with_bias) {
  using S = std::conditional_t<std::is_same_v<T, double>, double, float>;
  const Values x = random_values<T>(rows * n, -2, 4, 1), gain = random_values<T>(n, 0.5, 2, 3);
  const Values residual = with_residual ? random_values<T>(rows * n, -1, 1, 2) : Values{};
  const Values bias = with_bias ? random_values<T>(n, -1, 1, 4) : Values{};
  const View sum = with_residual ? device_view<T>({rows, n}) : absent,
             y = device_view<T>({rows, n});
  const View mean = device_view<S>({rows}), rstd = device_view<S>({rows});
  table.layernorm[sg::dtype_of<T>](device_view<T>({rows, n}, x),
                                   with_residual ? device_view<T>({rows, n}, residual) : absent,
                                   device_view<T>({n}, gain),
                                   with_bias ? device_view<T>({n}, bias) : absent,
                                   1e-5f,
                                   sum,
                                   y,
                                   mean,
                                   rstd,
                                   {});
  const Norm expected =
      reference_norm<T>(x, residual, gain, bias, static_cast<size_t>(rows), static_cast<size_t>(n));
  const std::string what = "layernorm of (" + std::to_string(rows) + ", " + std::to_string(n) + ")";
  // eps is an f32, also for f64 data
  const double slack = std::is_same_v<T, double> ? 1e-8 : 0;
  if (with_residual)
    expect_close<T>(values<T>(sum), expected.sum, what + ": sum");
  expect_close<S>(values<S>(mean), expected.mean, what + ": mean");
  const Values found_rstd = values<S>(rstd), found_y = values<T>(y);
  for (size_t i = 0; i < found_rstd.size(); ++i)
    ASSERT_NEAR(found_rstd[i], expected.rstd[i], (tolerance<S> + slack) * (1 + expected.rstd[i]))
        << what;
  for (size_t i = 0; i < found_y.size(); ++i)
    ASSERT_NEAR(found_y[i], expected.y[i], (tolerance<T> + slack) * (1 + std::abs(expected.y[i])))
        << what << " " << i;
}

TEST_P(OnSim, LayernormIsRightForEveryBlockShape) {
  for (const int64_t n :
       {1, 5, 32, 127, 128, 129, 300, 2048, 2500}) {  // one warp … all warps and a longer row
    check_layernorm<float>(2, n, false, true);
    check_layernorm<bf16>(1, n, true, false);
  }
  check_layernorm<float>(3, 200, true, true);
  check_layernorm<double>(2, 150, true, true);
  check_layernorm<f16>(2, 150, true, true);
  check_layernorm<float>(0, 8, false, true);
}

// ---- matmul ----

// A (rows, columns) view of which either the rows or the columns are dense, inside something
// larger.
template <class T>
View matrix(int64_t rows, int64_t columns, bool rows_dense, const Values& v) {
  View m = rows_dense ? device_view<T>({rows, columns}, v) : device_view<T>({columns, rows}, v);
  if (!rows_dense) {
    std::swap(m.shape[0], m.shape[1]);
    std::swap(m.strides[0], m.strides[1]);
  }
  return m;
}

struct Layouts {
  bool a_rows, b_rows, out_rows;  // dense by rows, else by columns
};

template <class T>
void check_matmul(Layouts dense, int64_t k, bool with_bias, bool accumulate) {
  const int64_t m = 3, n = 4;
  const auto at =
      [](const Values& v, bool rows_dense, int64_t i, int64_t j, int64_t rows, int64_t columns) {
        return v[static_cast<size_t>(rows_dense ? i * columns + j : j * rows + i)];
      };
  const Values va = random_values<T>(m * k, -1, 1, 1), vb = random_values<T>(k * n, -1, 1, 2);
  const Values vbias = random_values<T>(n, -1, 1, 3), start = random_values<T>(m * n, -1, 1, 4);
  const View a = matrix<T>(m, k, dense.a_rows, va), b = matrix<T>(k, n, dense.b_rows, vb);
  const View bias = device_view<T>({n}, vbias), out = matrix<T>(m, n, dense.out_rows, start);
  table.matmul[sg::dtype_of<T>](
      a, b, out, {.accumulate = accumulate, .bias = with_bias ? &bias : nullptr}, {}, {});
  const Values found = values<T>(out);
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      double sum = with_bias ? vbias[static_cast<size_t>(j)] : 0;
      if (accumulate)
        sum += at(start, dense.out_rows, i, j, m, n);
      for (int64_t l = 0; l < k; ++l)
        sum += at(va, dense.a_rows, i, l, m, k) * at(vb, dense.b_rows, l, j, k, n);
      ASSERT_NEAR(
          at(found, dense.out_rows, i, j, m, n), sum, 2 * tolerance<T> * (1 + std::abs(sum)));
    }
}

TEST_P(OnSim, MatmulHandsCublasltEveryLayout) {
  for (int layout = 0; layout < 8; ++layout) {
    const Layouts dense{(layout & 1) != 0, (layout & 2) != 0, (layout & 4) != 0};
    check_matmul<float>(dense, 5, false, false);
    check_matmul<float>(dense, 5, true, false);
    check_matmul<bf16>(dense, 5, true, false);
    check_matmul<f16>(dense, 1, false, true);
    check_matmul<float>(dense, 0, true, false);
    check_matmul<float>(dense, 0, false, true);
  }
}

// (2,3,m,k) · (3,k,n): a's heads lie inside its rows, as in attention, so that only one leading
// dimension is a batch; b is broadcast over the outer one.
TEST_P(OnSim, MatmulWalksLeadingDimensions) {
  const int64_t outer = 2, heads = 3, m = 2, k = 4, n = 3;
  const Values va = random_values<float>(outer * m * heads * k, -1, 1, 1),
               vb = random_values<float>(heads * k * n, -1, 1, 2);
  View a = device_view<float>({outer, m, heads, k}, va);
  const View b = device_view<float>({heads, k, n}, vb);
  std::swap(a.shape[1], a.shape[2]);
  std::swap(a.strides[1], a.strides[2]);
  const View out = device_view<float>({outer, heads, m, n});
  const auto bytes = static_cast<int64_t>(table.matmul_workspace(a, b, out, 1));
  const View memory = device_view<uint8_t>({bytes});
  table.matmul.f32(a, b, out, {}, {memory.data, static_cast<size_t>(bytes)}, {});
  Values expected;
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t i = 0; i < m; ++i)
        for (int64_t j = 0; j < n; ++j) {
          double sum = 0;
          for (int64_t l = 0; l < k; ++l)
            sum += va[static_cast<size_t>(((o * m + i) * heads + h) * k + l)] *
                   vb[static_cast<size_t>((h * k + l) * n + j)];
          expected.push_back(sum);
        }
  expect_close<float>(values<float>(out), expected, "matmul");
}

// A view below the alignment that the library is told of gives the same as one that isn't.
TEST_P(OnSim, MatmulOfMisalignedViewsIsCopied) {
  const int64_t n = 3;
  const Values va = random_values<float>(n * n + 1, -1, 1, 1);
  const View whole = device_view<float>({n * n + 1}, va);
  View a = device_view<float>({n, n}, Values(va.begin() + 1, va.end()));
  const View aligned = device_view<float>({n, n});
  const View shifted_out = device_view<float>({n * n + 1});
  View out = aligned;
  table.matmul.f32(a, a, out, {}, {}, {});
  a.data = whole.as<float>() + 1;
  out.data = shifted_out.as<float>() + 1;
  const auto bytes = static_cast<int64_t>(table.matmul_workspace(a, a, out, 1));
  const View memory = device_view<uint8_t>({bytes});
  table.matmul.f32(a, a, out, {}, {memory.data, static_cast<size_t>(bytes)}, {});
  EXPECT_EQ(values<float>(out), values<float>(aligned));
}

}  // namespace

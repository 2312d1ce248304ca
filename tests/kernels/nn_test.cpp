#include <gtest/gtest.h>

#include <cmath>

#include "tests/kernels/arrays.h"

namespace sg::test {
namespace {

constexpr DType floats[] = {DType::f32, DType::f64, DType::f16, DType::bf16};
const std::vector<int64_t> shapes[] = {
    {1, 1}, {3, 7}, {5, 64}, {37, 768}, {300, 33}, {0, 8}, {2, 3, 129}};

DType statistic(DType type) {
  return type == DType::f64 ? DType::f64 : DType::f32;
}
int64_t rows_of(const Array& x) {
  return x.numel() / x.view().size(-1);
}

// |got − want| ≤ ulps · rounding of the dtype, relative to `size`.
void expect_near(double got, double want, DType type, double size, int64_t at) {
  ASSERT_NEAR(got, want, epsilon(type) * std::max({1e-2, std::abs(want), size})) << "at " << at;
}

// Runs body(table, type, shape, stream) over everything; it returns arrays, which must not depend
// on the threads.
template <class F>
void for_all(F&& body) {
  for (const KernelTable* table : tables()) {
    for (DType type : floats) {
      for (const auto& shape : shapes) {
        SCOPED_TRACE(std::string(table->name) + " " + name_of(type) + " n " +
                     std::to_string(shape.back()));
        const std::vector<Array> one = body(*table, type, shape, StreamHandle{});
        for (int threads : {2, 3}) {
          const std::vector<Array> more = body(*table, type, shape, StreamHandle{&pool(threads)});
          for (size_t k = 0; k < one.size(); ++k)
            ASSERT_TRUE(more[k].same_bits(one[k])) << threads << " threads";
        }
        if (testing::Test::HasFatalFailure())
          return;
      }
    }
  }
}

TEST(Nn, SoftmaxAndItsBackward) {
  for_all([](const KernelTable& table,
             DType type,
             const std::vector<int64_t>& shape,
             StreamHandle stream) {
    Array x(type, shape), y(type, shape), dy(type, shape), dx(type, shape);
    x.random(1, 3), dy.random(2);
    table.softmax[type](x.view(), y.view(), stream);
    table.softmax_backward[type](y.view(), dy.view(), dx.view(), stream);
    const int64_t n = shape.back();
    for (int64_t row = 0; row < rows_of(x); ++row) {
      double total = 0, dot = 0, highest = -1e30;
      for (int64_t i = 0; i < n; ++i)
        highest = std::max(highest, x[row * n + i]);
      for (int64_t i = 0; i < n; ++i)
        total += std::exp(x[row * n + i] - highest), dot += y[row * n + i] * dy[row * n + i];
      for (int64_t i = row * n; i < (row + 1) * n; ++i) {
        expect_near(y[i], std::exp(x[i] - highest) / total, type, 0, i);
        expect_near(dx[i], y[i] * (dy[i] - dot), type, y[i] * std::abs(dot), i);
      }
    }
    std::vector<Array> out;
    out.push_back(std::move(y)), out.push_back(std::move(dx));
    return out;
  });
}

struct Norm {
  bool centred, residual, bias, d_sum;
};
void PrintTo(const Norm& n, std::ostream* out) {
  *out << (n.centred ? "layernorm" : "rmsnorm") << (n.residual ? "_residual" : "")
       << (n.bias ? "_bias" : "") << (n.d_sum ? "_through" : "");
}

// Sums over rows, of terms whose sizes add up to `sizes`.
void expect_columns(const Array& got,
                    const std::vector<double>& want,
                    const std::vector<double>& sizes,
                    DType type) {
  for (int64_t i = 0; i < got.numel(); ++i)
    expect_near(got[i], want[i], type, is_16bit(type) ? 0 : sizes[i], i);
}

struct NormArrays {
  Array x, r, sum, y, dy, d_sum, dx;  // (…, n)
  Array gain, bias, d_gain, d_bias;   // (n)
  Array mean, rstd;                   // (rows)
  NormArrays(DType type, const std::vector<int64_t>& shape)
      : x(type, shape),
        r(type, shape),
        sum(type, shape),
        y(type, shape),
        dy(type, shape),
        d_sum(type, shape),
        dx(type, shape),
        gain(type, {shape.back()}),
        bias(type, {shape.back()}),
        d_gain(type, {shape.back()}),
        d_bias(type, {shape.back()}),
        mean(statistic(type), {rows_of(x)}),
        rstd(statistic(type), {rows_of(x)}) {
    x.random(1);
    r.random(2);
    dy.random(3);
    d_sum.random(4);
    gain.random(5);
    bias.random(6);
  }
};

// What the kernels make of `a`; dx once more where dy was.
Array run_norm(const KernelTable& table,
               DType type,
               const std::vector<int64_t>& shape,
               StreamHandle stream,
               Norm norm,
               NormArrays& a) {
  const View none;
  const View bias = norm.bias ? a.bias.view() : none;
  const View d_bias = norm.bias ? a.d_bias.view() : none;
  const View residual = norm.residual ? a.r.view() : none;
  const View through = norm.d_sum ? a.d_sum.view() : none;
  const View in = norm.residual ? a.sum.view() : a.x.view();
  const Scratch scratch(
      table.layernorm_backward_workspace(a.x.view(), kernels::threads_of(stream)));
  const Workspace space = scratch.workspace();
  const View mean = a.mean.view(), rstd = a.rstd.view(), gain = a.gain.view();
  if (norm.centred) {
    table.layernorm[type](
        a.x.view(), residual, gain, bias, 1e-5f, a.sum.view(), a.y.view(), mean, rstd, stream);
  } else {
    table.rmsnorm[type](a.x.view(), residual, gain, 1e-5f, a.sum.view(), a.y.view(), rstd, stream);
  }
  Array in_place = std::move(Array(type, shape).random(3));  // dy, until dx takes its place
  for (const auto& [from, to] : {std::pair{&in_place, &in_place}, {&a.dy, &a.dx}}) {
    const View dy = from->view(), dx = to->view(), d_gain = a.d_gain.view();
    if (norm.centred) {
      table.layernorm_backward[type](
          dy, through, in, gain, mean, rstd, dx, d_gain, d_bias, space, stream);
    } else {
      table.rmsnorm_backward[type](dy, through, in, gain, rstd, dx, d_gain, space, stream);
    }
  }
  return in_place;
}

// Forward and backward of LayerNorm or RMSNorm against sums in f64 over what the kernel stored.
std::vector<Array> check_norm(const KernelTable& table,
                              DType type,
                              const std::vector<int64_t>& shape,
                              StreamHandle stream,
                              Norm norm) {
  NormArrays a(type, shape);
  const Array in_place = run_norm(table, type, shape, stream, norm, a);
  EXPECT_TRUE(in_place.same_bits(a.dx));
  auto& [x, r, sum, y, dy, d_sum, dx, gain, bias, d_gain, d_bias, mean, rstd] = a;
  const int64_t n = shape.back(), rows = rows_of(x);
  const Array& in = norm.residual ? sum : x;
  std::vector<double> gains(n), biases(n), sizes(n);
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t at = row * n;
    double m = 0, v = 0, e = 0, ex = 0;
    for (int64_t i = 0; norm.centred && i < n; ++i)
      m += in[at + i] / static_cast<double>(n);
    for (int64_t i = 0; i < n; ++i)
      v += (in[at + i] - m) * (in[at + i] - m) / static_cast<double>(n);
    const double scale = 1 / std::sqrt(v + 1e-5);
    for (int64_t i = 0; i < n; ++i) {
      const double normal = (in[at + i] - m) * scale, d = dy[at + i];
      if (norm.residual)
        expect_near(sum[at + i], x[at + i] + r[at + i], type, 0, at + i);
      expect_near(y[at + i],
                  normal * gain[i] + (norm.bias ? bias[i] : 0),
                  type,
                  std::abs(normal * gain[i]),
                  at + i);
      if (norm.centred)
        e += d * gain[i] / static_cast<double>(n);
      ex += d * gain[i] * normal / static_cast<double>(n);
      gains[i] += d * normal, biases[i] += d, sizes[i] += std::abs(d * normal) + std::abs(d);
    }
    for (int64_t i = 0; i < n; ++i) {
      const double normal = (in[at + i] - m) * scale,
                   own = scale * (dy[at + i] * gain[i] - e - normal * ex);
      const double size =
          scale * (std::abs(dy[at + i] * gain[i]) + std::abs(e) + std::abs(normal * ex)) +
          std::abs(d_sum[at + i]);
      expect_near(dx[at + i], own + (norm.d_sum ? d_sum[at + i] : 0), type, size, at + i);
    }
  }
  expect_columns(d_gain, gains, sizes, type);
  if (norm.centred && norm.bias)
    expect_columns(d_bias, biases, sizes, type);
  std::vector<Array> out;
  for (Array* a : {&y, &dx, &d_gain, &d_bias})
    out.push_back(std::move(*a));
  return out;
}

class NormTest : public testing::TestWithParam<Norm> {};
TEST_P(NormTest, ForwardAndBackwardMatchTheReference) {
  for_all([&](const KernelTable& table,
              DType type,
              const std::vector<int64_t>& shape,
              StreamHandle stream) { return check_norm(table, type, shape, stream, GetParam()); });
}
INSTANTIATE_TEST_SUITE_P(Nn,
                         NormTest,
                         testing::Values(Norm{true, false, true, false},
                                         Norm{true, true, true, true},
                                         Norm{true, false, false, true},
                                         Norm{false, false, false, false},
                                         Norm{false, true, false, true}),
                         [](const auto& info) { return testing::PrintToString(info.param); });

TEST(Nn, ActivationBackwardIsThePointwiseOneAndItsColumnSums) {
  const std::pair<PointwiseOp, PointwiseOp> pairs[] = {
      {PointwiseOp::gelu, PointwiseOp::gelu_backward},
      {PointwiseOp::gelu_tanh, PointwiseOp::gelu_tanh_backward},
      {PointwiseOp::silu, PointwiseOp::silu_backward},
      {PointwiseOp::relu, PointwiseOp::relu_backward}};
  for_all([&](const KernelTable& table,
              DType type,
              const std::vector<int64_t>& shape,
              StreamHandle stream) {
    const int64_t n = shape.back();
    std::vector<Array> out;
    for (const auto& [forward, backward] : pairs) {
      Array x(type, shape), dy(type, shape), dx(type, shape), want(type, shape), d_bias(type, {n}),
          sums(type, {n});
      x.random(1), dy.random(2);
      const View in[2] = {x.view(), dy.view()};
      table.pointwise[type](backward, in, want.view(), 0, stream);
      const Scratch scratch(table.column_sum_workspace(x.view(), kernels::threads_of(stream)));
      table.activation_backward[type](forward, x.view(), dy.view(), dx.view(), View{}, {}, stream);
      EXPECT_TRUE(dx.same_bits(want));
      table.activation_backward[type](
          forward, x.view(), dy.view(), dx.view(), d_bias.view(), scratch.workspace(), stream);
      EXPECT_TRUE(dx.same_bits(want));
      table.activation_backward[type](
          forward, x.view(), dy.view(), dy.view(), sums.view(), scratch.workspace(), stream);
      EXPECT_TRUE(dy.same_bits(want) && sums.same_bits(d_bias)) << "in place";
      table.column_sum[type](dx.view(), sums.view(), scratch.workspace(), stream);
      EXPECT_TRUE(d_bias.same_bits(sums)) << "fused sums are those of the stored gradient";
      for (int64_t i = 0; i < n; ++i) {
        double total = 0, size = 0;
        for (int64_t row = 0; row < rows_of(x); ++row)
          total += dx[row * n + i], size += std::abs(dx[row * n + i]);
        expect_near(sums[i], total, type, is_16bit(type) ? 0 : size, i);
      }
      out.push_back(std::move(sums));
    }
    return out;
  });
}

TEST(Nn, EmbeddingTakesRowsAndAddsTheirGradientsInRowOrder) {
  const int64_t v = 50, rows = 700;
  for (const KernelTable* table : tables()) {
    for (DType type : floats) {
      for (int64_t n : {5, 300}) {
        for (bool accumulate : {false, true}) {
          SCOPED_TRACE(std::string(name_of(type)) + (accumulate ? " accumulate" : ""));
          const DType id_type = accumulate ? DType::i64 : DType::i32;
          Array weight(type, {v, n}), ids(id_type, {rows}), out(type, {rows, n}),
              dy(type, {rows, n});
          weight.random(1), dy.random(2);
          for (int64_t i = 0; i < rows; ++i)
            ids.set(i, static_cast<double>(i * i % 47));  // some ids never come
          table->embedding[type](weight.view(), ids.view(), out.view(), {&pool(2)});
          for (int64_t i = 0; i < rows * n; ++i) {
            ASSERT_EQ(out[i], weight[static_cast<int64_t>(ids[i / n]) * n + i % n]);
          }
          const Scratch scratch(table->embedding_backward_workspace(ids.view(), weight.view(), 3));
          Array d_table(type, {v, n}), again(type, {v, n}), before(type, {v, n});
          d_table.random(3), again.random(3), before.random(3);
          table->embedding_backward[type](
              ids.view(), dy.view(), d_table.view(), accumulate, scratch.workspace(), {});
          table->embedding_backward[type](
              ids.view(), dy.view(), again.view(), accumulate, scratch.workspace(), {&pool(3)});
          ASSERT_TRUE(again.same_bits(d_table));
          std::vector<double> sums(v * n), sizes(v * n);
          for (int64_t i = 0; i < rows * n; ++i) {
            const int64_t at = static_cast<int64_t>(ids[i / n]) * n + i % n;
            sums[at] += dy[i], sizes[at] += std::abs(dy[i]);
          }
          for (int64_t i = 0; i < v * n; ++i) {
            const double want = sums[i] + (accumulate ? before[i] : 0);
            if (sizes[i] == 0)
              ASSERT_EQ(d_table[i], want);
            else
              expect_near(d_table[i], want, type, is_16bit(type) ? std::abs(sums[i]) : sizes[i], i);
          }
        }
      }
    }
  }
}

TEST(Nn, RopeTurnsPairsAndItsInverseTurnsBack) {
  const std::vector<int64_t> shape = {2, 5, 3, 150};  // b, t, h, d
  for (const KernelTable* table : tables()) {
    for (DType type : floats) {
      Array x(type, shape, {0, 2, 1, 3}), y(type, shape), back(type, shape),
          positions(DType::i64, {5});
      x.random(1);
      for (int64_t t = 0; t < 5; ++t)
        positions.set(t, static_cast<double>(t * t * 100));
      table->rope[type](x.view(), positions.view(), {}, false, y.view(), {&pool(2)});
      table->rope[type](y.view(), positions.view(), {}, true, back.view(), {});
      for (int64_t row = 0; row < 30; ++row) {
        for (int64_t i = 0; i < 75; ++i) {
          const double angle =
              positions[row / 3 % 5] * std::pow(10000.0, -2.0 * static_cast<double>(i) / 150);
          const double low = x[row * 150 + i], high = x[row * 150 + 75 + i];
          expect_near(y[row * 150 + i], low * std::cos(angle) - high * std::sin(angle), type, 2, i);
          expect_near(
              y[row * 150 + 75 + i], low * std::sin(angle) + high * std::cos(angle), type, 2, i);
          expect_near(back[row * 150 + i], low, type, 4, i);
        }
      }
    }
  }
}

// The instruction sets add up in other orders; their results agree closely.
TEST(Nn, InstructionSetsAgree) {
  if (tables().size() < 2)
    GTEST_SKIP() << "this processor has one of them";
  std::vector<Array> results[2];
  for (int k = 0; k < 2; ++k) {
    results[k] = check_norm(*tables()[k], DType::f32, {64, 1000}, {}, {true, true, true, true});
    Array x(DType::f32, {64, 1000}), y(DType::f32, {64, 1000});
    x.random(8, 4);
    tables()[k]->softmax.f32(x.view(), y.view(), {});
    results[k].push_back(std::move(y));
  }
  for (size_t a = 0; a < results[0].size(); ++a) {
    for (int64_t i = 0; i < results[0][a].numel(); ++i) {
      ASSERT_NEAR(
          results[0][a][i], results[1][a][i], 1e-5 * std::max(1.0, std::abs(results[0][a][i])));
    }
  }
}

}  // namespace
}  // namespace sg::test

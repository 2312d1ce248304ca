#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "tests/kernels/arrays.h"

namespace sg::test {
namespace {

struct Case {
  std::string name;
  std::vector<int64_t> a, b, out;
  std::vector<int> layout_a = {}, layout_b = {}, layout_out = {};
  bool accumulate = false, bias = false;
  int64_t gap = 0;
};
void PrintTo(const Case& c, std::ostream* out) {
  *out << c.name;
}

const Case cases[] = {
    {"one", {1, 1}, {1, 1}, {1, 1}},
    {"odd", {7, 13}, {13, 5}, {7, 5}},
    {"row", {1, 65}, {65, 130}, {1, 130}},
    {"column", {130, 65}, {65, 1}, {130, 1}},
    {"tiled", {300, 100}, {100, 500}, {300, 500}},
    {"a_transposed", {70, 33}, {33, 50}, {70, 50}, {1, 0}},
    {"b_transposed", {70, 33}, {33, 50}, {70, 50}, {}, {1, 0}},
    {"both_transposed", {70, 33}, {33, 150}, {70, 150}, {1, 0}, {1, 0}},
    {"out_transposed", {70, 33}, {33, 150}, {70, 150}, {}, {1, 0}, {1, 0}},
    {"all_transposed_bias", {70, 33}, {33, 150}, {70, 150}, {1, 0}, {1, 0}, {1, 0}, false, true},
    {"leading_dims", {70, 33}, {33, 150}, {70, 150}, {}, {}, {}, true, false, 3},
    {"bias", {150, 96}, {96, 200}, {150, 200}, {}, {1, 0}, {}, false, true},
    {"accumulate", {64, 600}, {600, 97}, {64, 97}, {1, 0}, {}, {}, true},
    {"weight_gradient", {70, 300}, {300, 301}, {70, 301}, {1, 0}, {}, {}, true, false, 3},
    {"turned_a",
     {61, 23},
     {23, 300},
     {61, 300},
     {1, 0},
     {},
     {},
     true,
     false,
     3},  // a is copied turned, edges and all
    {"turned_a_whole", {60, 16}, {16, 260}, {60, 260}, {1, 0}},
    {"halved", {70, 301}, {301, 300}, {70, 300}, {1, 0}, {}, {}, false, true},  // k is cut in two,
                                                                                // and not evenly
    {"halved_turned", {301, 300}, {300, 70}, {301, 70}, {1, 0}, {}, {1, 0}, false, true},
    {"deep", {9, 1500}, {1500, 11}, {9, 11}, {}, {}, {}, true},
    {"batch", {3, 2, 9, 17}, {3, 2, 17, 10}, {3, 2, 9, 10}},
    {"batch_broadcast_b", {4, 9, 17}, {17, 10}, {4, 9, 10}, {}, {1, 0}, {}, false, true},
    {"batch_broadcast_a", {9, 17}, {4, 17, 10}, {4, 9, 10}},
    {"batch_broadcast_both", {4, 1, 9, 17}, {1, 3, 17, 10}, {4, 3, 9, 10}},
    {"batch_layout",
     {4, 3, 9, 17},
     {4, 3, 17, 10},
     {4, 3, 9, 10},
     {0, 2, 1, 3},
     {0, 3, 1, 2},
     {0, 2, 1, 3}},
    {"batch_of_rows", {5, 1, 17}, {17, 10}, {5, 1, 10}},
    {"many_small", {200, 8, 8}, {200, 8, 8}, {200, 8, 8}, {0, 2, 1}},
    {"no_rows", {0, 4}, {4, 3}, {0, 3}},
    {"no_columns", {2, 4}, {4, 0}, {2, 0}},
    {"no_depth", {2, 0}, {0, 3}, {2, 3}, {}, {}, {}, false, true},
    {"no_depth_accumulate", {2, 0}, {0, 3}, {2, 3}, {}, {}, {}, true},
    {"no_batch", {0, 2, 4}, {4, 3}, {0, 2, 3}},
};

// Large enough for tiles that many threads share evenly, of operands that are turned first.
const Case even_cases[] = {
    {"even_a_transposed", {600, 600}, {600, 1000}, {600, 1000}, {1, 0}, {}, {}, true},
    {"even_all_transposed",
     {601, 590},
     {590, 1000},
     {601, 1000},
     {1, 0},
     {1, 0},
     {1, 0},
     false,
     true},
};

int64_t batch_offset(const Array& x, const std::vector<int64_t>& out_shape, int64_t batch) {
  const View& v = x.view();
  int64_t at = 0;
  for (int d = static_cast<int>(out_shape.size()) - 3; d >= 0; batch /= out_shape[d--]) {
    const int own = d - (static_cast<int>(out_shape.size()) - v.rank);
    if (own >= 0 && v.shape[own] != 1)
      at += batch % out_shape[d] * v.strides[own];
  }
  return at;
}

// |error| may reach epsilon × Σ |terms|; returns the largest ratio.
double worst_error(const Array& a,
                   const Array& b,
                   const Array& bias,
                   const Array& before,
                   const Array& out,
                   const Case& c) {
  const auto& shape = c.out;
  const int rank = static_cast<int>(shape.size());
  const int64_t m = shape[rank - 2], n = shape[rank - 1], k = a.view().size(-1);
  const DType type = out.view().dtype;
  double worst = 0;
  for (int64_t i = 0; i < out.numel(); ++i) {
    const int64_t batch = i / (m * n), row = i / n % m, column = i % n;
    const int64_t at = batch_offset(a, shape, batch) + row * a.view().stride(-2);
    const int64_t bt = batch_offset(b, shape, batch) + column * b.view().stride(-1);
    double sum = c.accumulate ? before[i]
                 : c.bias     ? bias[column]
                              : 0,
           size = std::fabs(sum) + 1e-30;
    for (int64_t j = 0; j < k; ++j) {
      const double term = read(a.view().data, type, at + j * a.view().stride(-1)) *
                          read(b.view().data, type, bt + j * b.view().stride(-2));
      sum += term, size += std::fabs(term);
    }
    const double error = std::fabs(out[i] - sum) / (epsilon(type) * size);
    worst = std::isnan(error) ? 1e30 : std::max(worst, error);
  }
  return worst;
}

Array multiply(const KernelTable& table,
               const Array& a,
               const Array& b,
               const Array& bias,
               const Case& c,
               DType type,
               int threads) {
  Array out(type, c.out, c.layout_out, c.gap);
  out.random(3);
  if (!c.accumulate)
    out.fill(NAN);
  const View bias_view = bias.view();
  const MatmulOptions options{c.accumulate, c.bias ? &bias_view : nullptr};
  const Scratch scratch(
      table.matmul_workspace(a.view(), b.view(), out.view(), std::max(threads, 1)));
  const StreamHandle stream{threads ? &pool(threads) : nullptr};
  table.matmul[type](a.view(), b.view(), out.view(), options, scratch.workspace(), stream);
  return out;
}

class Matmul : public testing::TestWithParam<std::tuple<Case, DType>> {};

TEST_P(Matmul, AgreesWithF64AndNeverDependsOnThreads) {
  const auto& [c, type] = GetParam();
  const Array a = std::move(Array(type, c.a, c.layout_a, c.gap).random(1));
  const Array b = std::move(Array(type, c.b, c.layout_b, c.gap).random(2));
  const Array bias = std::move(Array(type, {c.out.back()}).random(4));
  const Array before = std::move(Array(type, c.out, c.layout_out, c.gap).random(3));
  for (const KernelTable* table : tables()) {
    const Array out = multiply(*table, a, b, bias, c, type, 1);
    EXPECT_LE(worst_error(a, b, bias, before, out, c), 1.0) << table->name;
    for (const int threads : {2, 3}) {
      EXPECT_TRUE(out.same_bits(multiply(*table, a, b, bias, c, type, threads)))
          << table->name << ", " << threads << " threads";
    }
  }
}

std::string name_of_case(const testing::TestParamInfo<Matmul::ParamType>& info) {
  return std::get<0>(info.param).name + "_" + name_of(std::get<1>(info.param));
}
INSTANTIATE_TEST_SUITE_P(
    Shapes,
    Matmul,
    testing::Combine(testing::ValuesIn(cases),
                     testing::Values(DType::f32, DType::f64, DType::f16, DType::bf16)),
    name_of_case);

INSTANTIATE_TEST_SUITE_P(EvenTiles,
                         Matmul,
                         testing::Combine(testing::ValuesIn(even_cases),
                                          testing::Values(DType::f32)),
                         name_of_case);

// A tile never straddles what another thread count would cut differently: the shapes of GPT-2's
// weight gradients, where oneDNN's own threading changes bits.
TEST(MatmulBits, WeightGradientsAreTheSameForAnyThreads) {
  const Case c{"weight_gradient", {192, 1024}, {1024, 320}, {192, 320}, {1, 0}};
  const Array a = std::move(Array(DType::f32, c.a, c.layout_a).random(1));
  const Array b = std::move(Array(DType::f32, c.b).random(2));
  const Array none(DType::f32, {1});
  for (const KernelTable* table : tables()) {
    const Array out = multiply(*table, a, b, none, c, DType::f32, 0);
    for (const int threads : {1, 2, 3, 4}) {
      EXPECT_TRUE(out.same_bits(multiply(*table, a, b, none, c, DType::f32, threads))) << threads;
    }
  }
}

// Gradients are views of buckets, at any address.
TEST(MatmulBits, NeverDependOnAlignment) {
  const int64_t shapes[][3] = {{3, 5, 4}, {1, 1, 40}, {1, 33, 20}, {33, 1, 20}, {70, 90, 130}};
  for (const auto& [m, n, k] : shapes) {
    for (const DType type : {DType::f32, DType::f64, DType::f16, DType::bf16}) {
      for (const KernelTable* table : tables()) {
        const auto at = [&](int64_t shift) {
          const Array a = std::move(Array(type, {m, k}, {}, 0, shift).random(1));
          const Array b = std::move(Array(type, {k, n}, {1, 0}, 0, shift).random(2));
          Array out(type, {m, n}, {}, 0, shift);
          const Scratch scratch(table->matmul_workspace(a.view(), b.view(), out.view(), 1));
          table->matmul[type](a.view(), b.view(), out.view(), {}, scratch.workspace(), {});
          return out;
        };
        const Array first = at(0);
        for (const int64_t shift : {1, 2, 3}) {
          const Array other = at(shift);
          for (int64_t i = 0; i < first.numel(); ++i) {
            ASSERT_EQ(first[i], other[i])
                << table->name << " " << name_of(type) << " " << m << "×" << n << "×" << k;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace sg::test

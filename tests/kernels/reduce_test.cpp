#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/kernels/arrays.h"

namespace sg::test {
namespace {

struct Case {
  std::vector<int64_t> shape;
  std::vector<int> reduced;
  std::vector<int> layout = {};
  int64_t gap = 0;
};
const Case cases[] = {
    {{1}, {0}},
    {{7}, {0}},
    {{100003}, {0}},  // one output in pieces
    {{3, 70000}, {1}},
    {{200, 33}, {1}},  // rows
    {{200, 33}, {0}},  // columns
    {{333, 130}, {0}, {}, 3},
    {{200, 33}, {0, 1}},
    {{200, 33}, {1}, {1, 0}},  // the dense dimension is kept, transposed
    {{200, 33}, {0}, {1, 0}},
    {{4, 5, 6, 7}, {0, 2}},
    {{4, 5, 6, 7}, {1, 3}},
    {{4, 5, 6, 7}, {1, 2}, {3, 1, 0, 2}},
    {{4, 5, 6, 7}, {0, 1, 2}, {2, 3, 0, 1}},
    {{4, 5, 6, 70}, {0, 1}},
    {{3, 4}, {}},
    {{0, 4}, {0}},
    {{4, 0}, {0}},
};

double combine(ReduceOp op, double a, double b) {
  if (op == ReduceOp::max)
    return std::max(a, b);
  if (op == ReduceOp::min)
    return std::min(a, b);
  return a + b;
}

void check(const KernelTable& table, const Case& c, ReduceOp op, DType type) {
  Array x(type, c.shape, c.layout, c.gap);
  x.random(3, is_float(type) ? 1 : 50);
  std::vector<int64_t> out_shape = c.shape;
  for (int d : c.reduced)
    out_shape[d] = 1;
  Array out(type, out_shape);
  const bool extreme = op == ReduceOp::max || op == ReduceOp::min;
  if (extreme && x.numel() == 0)
    return;  // core refuses it
  std::vector<double> want(
      out.numel(),
      !extreme ? 0 : (op == ReduceOp::max ? -1 : 1) * std::numeric_limits<double>::infinity());
  std::vector<double> size(out.numel(), 0);
  for (int64_t i = 0; i < x.numel(); ++i) {
    int64_t at = 0, rest = i, weight = 1;
    for (int d = static_cast<int>(c.shape.size()) - 1; d >= 0; rest /= c.shape[d--]) {
      if (out_shape[d] == 1)
        continue;
      at += rest % c.shape[d] * weight;
      weight *= out_shape[d];
    }
    want[at] = combine(op, want[at], x[i]);
    size[at] += std::abs(x[i]);
  }
  const double terms =
      out.numel() ? static_cast<double>(x.numel()) / static_cast<double>(out.numel()) : 0;
  for (int threads : {1, 2, 3}) {
    Array again(type, out_shape);
    table.reduce[type](op, x.view(), again.view(), {&pool(threads)});
    if (threads == 1)
      table.reduce[type](op, x.view(), out.view(), {});
    ASSERT_TRUE(again.same_bits(out)) << threads << " threads";
  }
  for (int64_t i = 0; i < out.numel(); ++i) {
    double expected = want[i];
    if (op == ReduceOp::mean)
      expected = is_float(type) ? expected / terms : std::trunc(expected / terms);
    if (op == ReduceOp::mean && terms == 0)
      continue;
    const double sum_error =
        extreme || !is_float(type)
            ? 0
            : (type == DType::f64 ? 1e-14 : 3e-7) * size[i] / (op == ReduceOp::mean ? terms : 1);
    const double rounding = is_16bit(type) && !extreme ? epsilon(type) * std::abs(expected) : 0;
    ASSERT_NEAR(out[i], expected, sum_error + rounding) << "output " << i;
  }
}

TEST(Reduce, MatchesTheReferenceOverAnyDimensions) {
  for (const KernelTable* table : tables()) {
    for (DType type : {DType::f32, DType::f64, DType::f16, DType::bf16, DType::i32, DType::i64}) {
      for (ReduceOp op : {ReduceOp::sum, ReduceOp::mean, ReduceOp::max, ReduceOp::min}) {
        for (size_t i = 0; i < std::size(cases); ++i) {
          SCOPED_TRACE(std::string(table->name) + " " + name_of(type) + " op " +
                       std::to_string(static_cast<int>(op)) + " case " + std::to_string(i));
          check(*table, cases[i], op, type);
        }
      }
    }
  }
}

TEST(Reduce, MaximumIsNanWhereATermIs) {
  for (const KernelTable* table : tables()) {
    for (int64_t at : {0, 5, 99}) {
      Array x(DType::f32, {100}), out(DType::f32, {1});
      x.set(at, std::nan(""));
      table->reduce.f32(ReduceOp::max, x.view(), out.view(), {});
      EXPECT_TRUE(std::isnan(out[0]));
    }
  }
}

TEST(Reduce, ArgmaxIsTheFirstOfEquals) {
  for (const KernelTable* table : tables()) {
    for (DType type : {DType::f32, DType::f64, DType::f16, DType::bf16}) {
      Array x(type, {3, 50}), out(DType::i64, {3});
      x.set(7, 2), x.set(30, 2), x.set(50, 1), x.set(149, 5);
      table->argmax[type](x.view(), out.view(), {});
      EXPECT_EQ(out[0], 7);
      EXPECT_EQ(out[1], 0);
      EXPECT_EQ(out[2], 49);
    }
  }
}

}  // namespace
}  // namespace sg::test

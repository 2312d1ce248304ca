#include <gtest/gtest.h>

#include <cmath>

#include "tests/kernels/arrays.h"

namespace sg::test {
namespace {

constexpr DType all_types[] = {DType::f32,
                               DType::f64,
                               DType::f16,
                               DType::bf16,
                               DType::i32,
                               DType::i64,
                               DType::u8,
                               DType::boolean};

struct Layout {
  std::vector<int64_t> shape;
  std::vector<int> in = {}, out = {};
  int64_t gap = 0;
};
const Layout layouts[] = {
    {{}},
    {{0, 3}},
    {{17}},
    {{70001}},
    {{3, 40}, {0, 1}, {0, 1}, 3},
    {{100, 70}, {1, 0}},  // transposes
    {{100, 70}, {0, 1}, {1, 0}},
    {{2, 5, 33, 31}, {0, 2, 1, 3}, {0, 1, 2, 3}},  // heads of a batch
    {{2, 5, 33, 31}, {0, 1, 3, 2}, {0, 1, 2, 3}},
    {{4, 3, 5, 7}, {3, 1, 0, 2}, {2, 0, 1, 3}, 1},
};

TEST(Memory, CopyKeepsValuesInEveryLayout) {
  for (const KernelTable* table : tables()) {
    for (DType type : all_types) {
      for (const Layout& l : layouts) {
        Array x(type, l.shape, l.in, l.gap), y(type, l.shape, l.out, l.gap);
        for (int64_t i = 0; i < x.numel(); ++i)
          x.set(i, type == DType::boolean ? i % 3 == 0 : static_cast<double>(i % 120));
        table->copy(x.view(), y.view(), {&pool(2)});
        for (int64_t i = 0; i < x.numel(); ++i)
          ASSERT_EQ(y[i], x[i]) << name_of(type) << " element " << i;
      }
    }
  }
}

TEST(Memory, CopyCastsBetweenAnyTwoDtypes) {
  const double values[] = {0, 1, 2, 3, 100, 0.5, 1.75, 77.125};
  for (const KernelTable* table : tables()) {
    for (DType from : all_types) {
      for (DType to : all_types) {
        Array x(from, {5, 8}), y(to, {5, 8}, {1, 0});
        for (int64_t i = 0; i < 40; ++i)
          x.set(i, values[i % 8]);
        if (from == DType::boolean) {
          for (int64_t i = 0; i < 40; ++i)
            x.set(i, i % 2);
        }
        table->copy(x.view(), y.view(), {});
        for (int64_t i = 0; i < 40; ++i) {
          const double want = to == DType::boolean ? x[i] != 0
                              : is_float(to)       ? x[i]
                                                   : std::trunc(x[i]);
          ASSERT_NEAR(y[i], want, is_16bit(to) ? 0.4 : 0) << name_of(from) << " to " << name_of(to);
        }
      }
    }
  }
}

// All 2^16 patterns of both 16-bit formats, and f32 numbers on and beside every rounding boundary.
TEST(Memory, SixteenBitConversionsMatchTheScalarOnes) {
  const int64_t n = 65536;
  for (const KernelTable* table : tables()) {
    for (DType type : {DType::f16, DType::bf16}) {
      Array half(type, {n}), wide(DType::f32, {n}), back(type, {n});
      for (int64_t i = 0; i < n; ++i)
        half.view().as<uint16_t>()[i] = static_cast<uint16_t>(i);
      table->copy(half.view(), wide.view(), {});
      for (int64_t i = 0; i < n; ++i) {
        if (std::isnan(half[i]))
          ASSERT_TRUE(std::isnan(wide[i]));
        else
          ASSERT_EQ(wide[i], half[i]);
      }
      const int shift = type == DType::f16 ? 13 : 16;
      for (const int64_t beside : {-1, 0, 1}) {
        Array x(DType::f32, {n});
        for (int64_t i = 0; i < n;
             ++i) {  // half-way between neighbours, over all exponents of the format
          const int64_t pattern =
              (type == DType::f16 ? 0x37000000 + (i << 13) : i << 16) + (1 << (shift - 1)) + beside;
          x.view().as<uint32_t>()[i] = static_cast<uint32_t>(pattern);
        }
        table->copy(x.view(), back.view(), {});
        for (int64_t i = 0; i < n; ++i) {
          const float value = x.view().as<float>()[i];
          const uint16_t want = type == DType::f16 ? f16(value).bits : bf16(value).bits;
          ASSERT_EQ(back.view().as<uint16_t>()[i], want) << name_of(type) << " of " << value;
        }
      }
    }
  }
}

TEST(Memory, FillWritesTheViewAndNothingElse) {
  for (const KernelTable* table : tables()) {
    for (DType type : all_types) {
      Array x(type, {20, 7}, {}, 3);
      table->fill(x.view(), 1, {&pool(2)});
      Array whole(type, {20, 10});
      for (int64_t i = 0; i < 200; ++i) {
        ASSERT_EQ(read(x.view().data, type, i), i % 10 < 7 && i < 197 ? 1 : 0)
            << name_of(type) << " " << i;
      }
    }
  }
}

}  // namespace
}  // namespace sg::test

#include "kernels/random.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "tests/kernels/arrays.h"

namespace sg::test {
namespace {

const RandomKey key{.seed = 17, .op = 0x1234567890abcdefull, .step = 3, .first_sample = 5};

TEST(Random, PhiloxHasTheValuesOfItsAuthors) {  // kat_vectors of Random123
  const auto check = [](uint64_t k, Philox4 counter, const uint32_t(&want)[4]) {
    const Philox4 got = philox(k, counter);
    for (int i = 0; i < 4; ++i)
      EXPECT_EQ(got.word[i], want[i]);
  };
  check(0, {{0, 0, 0, 0}}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  check(~0ull, {{~0u, ~0u, ~0u, ~0u}}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  check(0x299f31d0a4093822ull,
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}},
        {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST(Random, UniformDrawsAreThoseOfTheCounters) {
  for (const KernelTable* table : tables()) {
    for (const std::vector<int64_t>& shape :
         {std::vector<int64_t>{3, 777}, {2, 5}, {1, 64}, {0, 4}, {4, 3, 21}, {9}}) {
      Array x(DType::f32, shape);
      table->random_uniform(x.view(), key, -1, 3, {&pool(2)});
      const int64_t n = x.numel() == 0 ? 1 : x.numel() / shape[0];
      for (int64_t i = 0; i < x.numel(); ++i) {
        const Philox4 words = draw(key, key.first_sample + i / n, i % n / 4);
        ASSERT_EQ(x[i], std::fma(uniform(words.word[i % n % 4]), 4.0f, -1.0f));
      }
    }
  }
}

TEST(Random, NormalDrawsHaveTheirMoments) {
  const int64_t n = 200000;
  for (const KernelTable* table : tables()) {
    Array x(DType::f32, {2, n / 2});
    table->random_normal(x.view(), key, 1, 2, {&pool(3)});
    double moment[5] = {};
    for (int64_t i = 0; i < n; ++i) {
      for (int p = 1; p < 5; ++p)
        moment[p] += std::pow((x[i] - 1) / 2, p) / n;
    }
    EXPECT_NEAR(moment[1], 0, 0.01);
    EXPECT_NEAR(moment[2], 1, 0.02);
    EXPECT_NEAR(moment[3], 0, 0.03);
    EXPECT_NEAR(moment[4], 3, 0.1);
    Array reference(DType::f32, {2, n / 2});
    tables()[0]->random_normal(reference.view(), key, 1, 2, {});
    EXPECT_TRUE(x.same_bits(reference)) << "every instruction set draws the same weights";
  }
}

// A sample's draws depend on its number alone: the second half of a batch is the batch that starts
// there.
TEST(Random, DropoutDependsOnTheSampleNotOnTheBatch) {
  const int64_t rows = 6, n = 1001;
  for (const KernelTable* table : tables()) {
    for (DType type : {DType::f32, DType::f64, DType::f16, DType::bf16}) {
      Array x(type, {rows, n}), y(type, {rows, n}), again(type, {rows, n});
      x.random(1);
      table->dropout[type](x.view(), y.view(), 0.3f, key, {&pool(3)});
      int64_t dropped = 0;
      for (int64_t i = 0; i < rows * n; ++i) {
        const bool drop =
            uniform(draw(key, key.first_sample + i / n, i % n / 4).word[i % n % 4]) < 0.3f;
        dropped += drop;
        ASSERT_NEAR(y[i],
                    drop ? 0 : x[i] / (1 - static_cast<double>(0.3f)),
                    epsilon(type) * std::abs(x[i]) * 2);
      }
      EXPECT_NEAR(static_cast<double>(dropped) / (rows * n), 0.3, 0.03);
      View half_in = x.view(), half_out = again.view();
      const int64_t start = rows / 2 * n * static_cast<int64_t>(size_of(type));
      half_in.shape[0] = half_out.shape[0] = rows / 2;
      half_in.data = half_in.as<char>() + start;
      half_out.data = half_out.as<char>() + start;
      RandomKey later = key;
      later.first_sample += rows / 2;
      table->dropout[type](half_in, half_out, 0.3f, later, {});
      for (int64_t i = rows / 2 * n; i < rows * n; ++i)
        ASSERT_EQ(again[i], y[i]);
    }
  }
}

TEST(Random, KeysDifferBySeedAndOp) {
  std::set<uint64_t> keys;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    for (uint64_t op = 0; op < 50; ++op)
      keys.insert(philox_key({.seed = seed, .op = op}));
  }
  EXPECT_EQ(keys.size(), 2500u);
}

}  // namespace
}  // namespace sg::test

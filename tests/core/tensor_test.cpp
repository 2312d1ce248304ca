#include "core/tensor.h"

#include <gtest/gtest.h>

#include <functional>
#include <numeric>

#include "core/ops.h"

namespace sg {
namespace {

Tensor counting(const Shape& shape) {
  std::vector<float> values(static_cast<size_t>(numel(shape)));
  std::iota(values.begin(), values.end(), 0.0f);
  return from_vector(values, shape);
}

TEST(Shape, BroadcastsByNumPysRule) {
  struct Row {
    Shape a, b, result;
  };
  for (const Row& row : {Row{{3, 1}, {4}, {3, 4}},
                         Row{{}, {2, 3}, {2, 3}},
                         Row{{5, 1, 2}, {3, 1}, {5, 3, 2}},
                         Row{{0}, {1}, {0}}}) {
    EXPECT_EQ(broadcast(row.a, row.b, "test"), row.result);
    EXPECT_EQ(broadcast(row.b, row.a, "test"), row.result);
  }
  EXPECT_THROW(broadcast({3}, {4}, "test"), Error);
}

TEST(Shape, OverflowAndNegativeSizesAreUsageErrors) {
  EXPECT_THROW(numel({int64_t{1} << 40, int64_t{1} << 40}), Error);
  EXPECT_THROW(numel({-1}), Error);
  EXPECT_THROW(empty({int64_t{1} << 62}, DType::f64), Error);
  EXPECT_THROW((Shape{1, 2, 3, 4, 5, 6, 7}), Error);
}

TEST(Tensor, ViewsShareMemory) {
  const Tensor x = counting({2, 3, 4});
  EXPECT_EQ(x.transpose(0, 2).shape(), (Shape{4, 3, 2}));
  EXPECT_EQ(x.transpose(0, 2).storage(), x.storage());
  EXPECT_EQ(x.slice(1, 1, 3).to_vector<float>(),
            (std::vector<float>{4, 5, 6, 7, 8, 9, 10, 11, 16, 17, 18, 19, 20, 21, 22, 23}));
  EXPECT_EQ(x.select(0, 1).select(0, 2).to_vector<float>(), (std::vector<float>{20, 21, 22, 23}));
  EXPECT_EQ(x.permute({1, 0, 2}).select(0, 0).to_vector<float>(),
            (std::vector<float>{0, 1, 2, 3, 12, 13, 14, 15}));
  EXPECT_EQ(counting({2}).unsqueeze(1).expand({2, 3}).to_vector<float>(),
            (std::vector<float>{0, 0, 0, 1, 1, 1}));
}

TEST(Tensor, ReshapeIsAViewWhereStridesAllowOne) {
  const Tensor x = counting({2, 3, 4});
  struct Row {
    Tensor from;
    Shape to;
    bool view;
  };
  const Row rows[] = {{x, {6, 4}, true},
                      {x, {-1}, true},
                      {x, {2, 1, 12}, true},
                      {x.slice(2, 0, 2), {6, 2}, true},  // rows stay equally far apart
                      {x.slice(2, 0, 2), {12}, false},   // holes between rows
                      {x.slice(1, 0, 2), {2, 8}, true},
                      {x.transpose(1, 2), {2, 12}, false},
                      {x.transpose(1, 2), {2, 2, 2, 3}, true},  // splitting never moves anything
                      {x.transpose(0, 1), {3, 2, 2, 2}, true},
                      {x.unsqueeze(1).transpose(0, 1), {2, 3, 4}, true}};
  for (const Row& row : rows) {
    const Tensor y = row.from.reshape(row.to);
    EXPECT_EQ(y.storage() == row.from.storage(), row.view)
        << to_string(row.from.shape()) << " to " << to_string(row.to);
    EXPECT_EQ(y.to_vector<float>(), row.from.to_vector<float>())
        << to_string(row.from.shape()) << " to " << to_string(row.to);
  }
  EXPECT_THROW(x.reshape({5, 5}), Error);
  EXPECT_THROW(x.reshape({-1, -1}), Error);
}

TEST(Tensor, EmptyTensorsKeepTheirShape) {
  const Tensor x = empty({0, 3});
  EXPECT_EQ(x.reshape({3, 0}).shape(), (Shape{3, 0}));
  EXPECT_EQ(x.to_vector<float>().size(), 0u);
}

TEST(Tensor, WrongDTypeAndRangeAreUsageErrors) {
  const Tensor x = counting({2, 3});
  EXPECT_THROW(x.data<double>(), Error);
  EXPECT_THROW(x.item<float>(), Error);
  EXPECT_THROW(x.slice(0, 1, 3), Error);
  EXPECT_THROW(x.size(2), Error);
  EXPECT_THROW(x.permute({0, 0}), Error);
  EXPECT_THROW(Tensor().view(), Error);
}

TEST(Tensor, MetaKeepsShapesAndBooksOnly) {
  const DeviceGuard guard(meta(42));
  const uint64_t before = pool(meta(42)).ledger().total();
  const Tensor x = zeros({1 << 20, 1 << 20});
  EXPECT_EQ(pool(meta(42)).ledger().total() - before, uint64_t{1} << 42);
  EXPECT_EQ(matmul(x.slice(1, 0, 64), x.slice(0, 0, 64)).shape(), (Shape{1 << 20, 1 << 20}));
}

TEST(Tensor, CopiesCrossDTypesAndBroadcast) {
  const Tensor x = counting({3});
  const Tensor y = zeros({2, 3}, DType::bf16);
  const uint64_t version = y.version();
  copy_(y, x);
  EXPECT_EQ(cast(y, DType::f32).to_vector<float>(), (std::vector<float>{0, 1, 2, 0, 1, 2}));
  EXPECT_GT(y.version(), version);
  EXPECT_EQ(to(x, host).device(), host);
  const Tensor parts[] = {x.unsqueeze(0), x.unsqueeze(0)};
  EXPECT_EQ(concatenate(parts, 0).shape(), (Shape{2, 3}));
  EXPECT_EQ(concatenate(parts, 1).to_vector<float>(), (std::vector<float>{0, 1, 2, 0, 1, 2}));
}

TEST(Tensor, SumsOverChunksFollowOneTree) {
  EXPECT_EQ(tree_sum(std::vector<double>{}), 0);
  // ((1 + 1e16) + (−1e16 + 1)) + 1: pairs first, the odd one carried up.
  EXPECT_EQ(tree_sum(std::vector<double>{1, 1e16, -1e16, 1, 1}), ((1 + 1e16) + (-1e16 + 1)) + 1);
}

TEST(Shape, SizesBesideAZeroMustFitAsWell) {
  const int64_t large = int64_t{1} << 40;
  for (const Shape& shape :
       {Shape{0, large, large}, Shape{large, 0, large}, Shape{large, large, 0}}) {
    EXPECT_THROW(numel(shape), Error);
    EXPECT_THROW(empty(shape), Error);
    EXPECT_THROW(zeros({1, 1, 1}).expand({large, large, 1}), Error);
  }
  EXPECT_EQ(numel({0, large}), 0);
  EXPECT_EQ(rows_of({2, 3, 0}), Shape({6, 0}));
  EXPECT_THROW(zeros({3, 0}).reshape({-1, 0}), Error);
}

TEST(Tensor, AnUndefinedOneIsNamedByWhatIsAsked) {
  const Tensor none;
  const std::pair<const char*, std::function<void()>> cases[] = {
      {"device", [&] { none.device(); }},
      {"version", [&] { none.version(); }},
      {"reshape", [&] { none.reshape({1}); }},
      {"transpose", [&] { none.transpose(0, 0); }},
      {"slice", [&] { none.slice(0, 0, 0); }},
      {"select", [&] { none.select(0, 0); }},
      {"expand", [&] { none.expand({2}); }},
      {"squeeze", [&] { none.squeeze(0); }},
      {"unsqueeze", [&] { none.unsqueeze(0); }},
      {"permute", [&] { none.permute({}); }},
      {"data", [&] { none.item<float>(); }},
      {"device", [&] { empty_like(none); }},
  };
  for (const auto& [what, call] : cases) {
    try {
      call();
      ADD_FAILURE() << what << ": no error";
    } catch (const Error& e) {
      EXPECT_EQ(std::string(e.what()), std::string(what) + ": the tensor is undefined");
    }
  }
}

}  // namespace
}  // namespace sg

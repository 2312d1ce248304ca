// An id or a target outside its table is an error of every op that takes it: op, position, value
// and size. -1 alone leaves a target out.
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "core/ops.h"
#include "tests/errors.h"

namespace sg {
namespace {

constexpr int64_t size = 10;

struct Row {
  const char* op;
  std::function<void(const Tensor& indices)> call;  // (n)
  bool minus_one = false;                           // leaves a row out
};

std::vector<Row> rows() {
  const auto table = [] { return full({size, 4}, 1); };
  const auto like = [](const Tensor& ids) { return full({ids.numel(), 4}, 1); };
  return {
      {"embedding", [=](const Tensor& ids) { embedding(table(), ids); }},
      {"gather_rows", [=](const Tensor& ids) { gather_rows(table(), ids); }},
      {"embedding_backward",
       [=](const Tensor& ids) { embedding_backward_(table(), ids, like(ids), true); }},
      {"embedding_backward",
       [=](const Tensor& ids) { embedding_backward_(table(), ids, like(ids), false); }},
      {"cross_entropy",
       [](const Tensor& ids) {
         cross_entropy(full({ids.numel(), size}, 1), ids, false);
       },
       true},
      {"cross_entropy",
       [](const Tensor& ids) {
         cross_entropy(full({ids.numel(), size}, 1), ids, true);
       },
       true},
      {"classifier", [=](const Tensor& ids) { classifier(like(ids), table(), ids, false); }, true},
      {"classifier", [=](const Tensor& ids) { classifier(like(ids), table(), ids, true); }, true},
  };
}

Tensor indices(int64_t n, int64_t position, int64_t value, DType dtype) {
  std::vector<int64_t> values(static_cast<size_t>(n));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<int64_t>(i) % size;
  values[static_cast<size_t>(position)] = value;
  return cast(from_vector(values), dtype);
}

TEST(Indices, OutsideTheTableAreRefusedWithOpPositionValueAndSize) {
  const int64_t n = 5000;  // several blocks of the scan
  for (const Row& row : rows()) {
    for (const DType dtype : {DType::i32, DType::i64}) {
      std::vector<int64_t> wrong = {
          size, size + 1, -2, -100, 1 << 30, std::numeric_limits<int32_t>::min()};
      if (dtype == DType::i64)
        wrong.insert(wrong.end(), {int64_t{1} << 32, std::numeric_limits<int64_t>::min()});
      if (!row.minus_one)
        wrong.push_back(-1);
      for (const int64_t value : wrong) {
        for (const int64_t position : {int64_t{0}, int64_t{2500}, n - 1}) {
          const auto message = test::error_of(
              ErrorKind::usage, [&] { row.call(indices(n, position, value, dtype)); });
          for (const std::string& part : {std::string(row.op),
                                          fmt::format(" {} ", value),
                                          fmt::format("({})", position),
                                          fmt::format("[0, {})", size)}) {
            EXPECT_NE(message.find(part), std::string::npos) << message << " lacks " << part;
          }
        }
      }
    }
  }
}

TEST(Indices, InsideTheTablePass) {
  for (const Row& row : rows()) {
    for (const DType dtype : {DType::i32, DType::i64}) {
      EXPECT_NO_THROW(row.call(indices(100, 3, size - 1, dtype))) << row.op;
      if (row.minus_one) {
        EXPECT_NO_THROW(row.call(indices(100, 3, -1, dtype))) << row.op;
      }
    }
  }
}

TEST(Indices, PositionsAreThoseOfTheTensorThatWasGiven) {
  const Tensor ids = from_vector<int32_t>({0, 1, 2, 3, 4, 77}, {2, 3}).transposed();
  const auto message = test::error_of(ErrorKind::usage, [&] {
    embedding(full({size, 4}, 1), ids);
  });
  EXPECT_NE(message.find("77 at position (2, 1)"), std::string::npos) << message;
}

TEST(Indices, NothingIsWrittenWhereTheyAreRefused) {
  const Tensor d_table = full({size, 4}, 3);
  test::error_of(ErrorKind::usage, [&] {
    embedding_backward_(d_table, from_vector<int32_t>({1, 99}), full({2, 4}, 1), false);
  });
  EXPECT_EQ(d_table.to_vector<float>(), std::vector<float>(40, 3));
}

TEST(Indices, MoreThanTheirListsCanCountAreRefused) {
  DeviceGuard guard(meta());
  const int64_t n = int64_t{1} << 31;
  test::error_of(ErrorKind::usage, [&] {
    embedding_backward_(empty({size, 1}), empty({n}, DType::i32), empty({n, 1}), false);
  });
}

}  // namespace
}  // namespace sg

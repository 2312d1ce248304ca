#include "models/data/data.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <numeric>
#include <set>

#include "core/error.h"
#include "models/data/sampling.h"
#include "tests/core/temporary_folder.h"
#include "tests/errors.h"

namespace sg::models {
namespace {

using test::error_of;
using test::put;
using test::TemporaryFolder;
using Ids = std::vector<uint16_t>;
using Values = std::vector<int32_t>;

std::string bytes_of(const Ids& ids) {
  return {reinterpret_cast<const char*>(ids.data()), ids.size() * 2};
}

// llm.c's file: 256 int32, then the ids.
std::string llmc(int32_t magic, int32_t version, int32_t count, const Ids& ids) {
  std::vector<int32_t> header(256);
  header[0] = magic, header[1] = version, header[2] = count;
  return std::string(reinterpret_cast<const char*>(header.data()), 1024) + bytes_of(ids);
}

Ids ascending(size_t n) {
  Ids ids(n);
  std::iota(ids.begin(), ids.end(), 0);
  return ids;
}

// A data set whose id at position i is i.
TokenDataset counting(const TemporaryFolder& folder, size_t n, double val_fraction) {
  put(folder / "ids.bin", bytes_of(ascending(n)));
  return {folder / "ids.bin", 65536, val_fraction};
}

TEST(Permutation, IsOneForEverySize) {
  for (uint64_t n = 1; n <= 300; ++n) {
    const Permutation order(n, 7, 0);
    std::set<uint64_t> seen;
    for (uint64_t i = 0; i < n; ++i)
      seen.insert(order(i));
    EXPECT_EQ(seen.size(), n);
    EXPECT_EQ(*seen.rbegin(), n - 1);
  }
}

TEST(Permutation, DependsOnSeedAndEpochAndLooksRandom) {
  constexpr uint64_t n = 10'000;
  const Permutation a(n, 1, 0), b(n, 1, 1), c(n, 2, 0);
  int same_b = 0, same_c = 0, fixed = 0, ascents = 0;
  for (uint64_t i = 0; i < n; ++i) {
    same_b += a(i) == b(i), same_c += a(i) == c(i), fixed += a(i) == i;
    ascents += i > 0 && a(i) > a(i - 1);
  }
  EXPECT_LT(same_b, 10);
  EXPECT_LT(same_c, 10);
  EXPECT_LT(fixed, 10);
  EXPECT_NEAR(ascents, n / 2, 200);
  EXPECT_EQ(Permutation(n, 1, 0)(123), a(123));
}

TEST(Data, TextSplitsWithItsLastPartForValidation) {
  const TemporaryFolder folder;
  put(folder / "text", "0123456789");
  const TextDataset data(folder / "text", ByteTokenizer{}, 0.25);
  EXPECT_EQ(data.size(), 10u);
  EXPECT_EQ(data.training_size(), 7u);
  EXPECT_EQ(data.validation_size(), 3u);
  EXPECT_EQ(data.vocabulary(), 256);
  EXPECT_EQ(data.validation_batch(0, 8, 2).tokens.to_vector<int32_t>(), (Values{'7', '8'}));
  EXPECT_EQ(data.validation_batch(0, 8, 2).targets.to_vector<int32_t>(), (Values{'8', '9'}));
}

TEST(Data, CharsLearnTheVocabularyOfTheWholeText) {
  const TextDataset data = TextDataset::of("aaaabz", "text", CharTokenizer{}, 0.4);
  EXPECT_EQ(data.vocabulary(), 3);
  EXPECT_EQ(data.validation_batch(0, 1, 2).targets.to_vector<int32_t>(), (Values{1, 2}));
}

TEST(Data, AnEpochTakesTheWindowAtEveryStartOnce) {
  const TemporaryFolder folder;
  const TokenDataset data = counting(folder, 40, 0.25);  // 30 to train on
  const BatchOptions options{.size = 3, .context = 3, .steps = 18, .seed = 5};
  std::vector<int> first_epoch, second_epoch;
  for (auto& batch : data.batches(options)) {
    const Values tokens = batch.tokens.to_vector<int32_t>(),
                 targets = batch.targets.to_vector<int32_t>();
    ASSERT_EQ(batch.tokens.shape(), (Shape{3, 3}));
    for (size_t i = 0; i < tokens.size(); ++i)
      EXPECT_EQ(targets[i], tokens[i] + 1);
    for (size_t row = 0; row < 3; ++row)
      (batch.step < 9 ? first_epoch : second_epoch).push_back(tokens[row * 3]);
  }
  EXPECT_NE(first_epoch, second_epoch);
  std::vector<int> starts(27);
  std::iota(starts.begin(), starts.end(), 0);
  for (auto* epoch : {&first_epoch, &second_epoch}) {
    std::sort(epoch->begin(), epoch->end());
    EXPECT_EQ(*epoch, starts);
  }
}

// All rows of a step in the order of their micro-batches, whoever takes them.
Values step_of(const Dataset& data, BatchOptions options, uint64_t step) {
  std::map<uint64_t, Values> by_number;
  for (options.rank = 0; options.rank < options.world; ++options.rank)
    for (int64_t j = 0; j < options.micro_batches; ++j) {
      const Rows rows = data.training_rows(options, step, j);
      by_number[rows.micro_batch] = rows.tokens;
      EXPECT_EQ(rows.first_sample, step * 12 + rows.micro_batch * 3);
    }
  Values all;
  for (const auto& [number, tokens] : by_number)
    all.insert(all.end(), tokens.begin(), tokens.end());
  return all;
}

TEST(Data, TheOrderDoesNotDependOnTheWorldSize) {
  const TemporaryFolder folder;
  const TokenDataset data = counting(folder, 1000, 0);
  const BatchOptions alone{.size = 3, .context = 8, .seed = 9, .micro_batches = 4};
  const BatchOptions pair{.size = 3, .context = 8, .seed = 9, .micro_batches = 2, .world = 2};
  const BatchOptions four{.size = 3, .context = 8, .seed = 9, .micro_batches = 1, .world = 4};
  for (const uint64_t step : {0, 1, 77}) {
    EXPECT_EQ(step_of(data, alone, step), step_of(data, pair, step));
    EXPECT_EQ(step_of(data, alone, step), step_of(data, four, step));
  }
}

TEST(Data, AResumedRunGoesOnWhereItWas) {
  const TemporaryFolder folder;
  const TokenDataset data = counting(folder, 500, 0);
  BatchOptions options{.size = 2, .context = 8, .steps = 9, .seed = 3, .micro_batches = 2};
  std::vector<Values> whole, resumed;
  for (auto& batch : data.batches(options))
    whole.push_back(batch.tokens.to_vector<int32_t>());
  options.first_step = 5;
  for (auto& batch : data.batches(options)) {
    EXPECT_EQ(batch.step, 5 + resumed.size() / 2);
    resumed.push_back(batch.tokens.to_vector<int32_t>());
  }
  ASSERT_EQ(whole.size(), 18u);
  EXPECT_EQ(resumed, std::vector<Values>(whole.begin() + 10, whole.end()));
  options.first_step = 9;
  Batch batch;
  EXPECT_FALSE(data.batches(options).next(batch));

  // Larger steps from there on neither skip a sample nor take one again.
  options = {.size = 4,
             .context = 8,
             .steps = 8,
             .seed = 3,
             .micro_batches = 1,
             .first_step = 5,
             .samples_before = 20};
  Values before, after;
  for (size_t i = 10; i < 16; ++i)
    before.insert(before.end(), whole[i].begin(), whole[i].end());
  for (auto& larger : data.batches(options)) {
    const Values tokens = larger.tokens.to_vector<int32_t>();
    after.insert(after.end(), tokens.begin(), tokens.end());
  }
  EXPECT_EQ(after, before);
}

TEST(Prefetch, StopsCleanlyWhileItIsAhead) {
  const TextDataset data = TextDataset::of(std::string(1000, 'x'), "text", ByteTokenizer{});
  Batches unused = data.batches({.size = 2, .context = 8, .steps = 1'000'000});
  Batches begun = data.batches({.size = 2, .context = 8, .steps = 1'000'000});
  Batch batch;
  EXPECT_TRUE(begun.next(batch));
}

TEST(Prefetch, OnlyBatchesThatAreHeldAreBooked) {
  const DeviceGuard device(cpu(9));
  const TextDataset data = TextDataset::of(std::string(1000, 'x'), "text", ByteTokenizer{});
  Batches batches = data.batches({.size = 2, .context = 8, .steps = 100});
  Batch batch;
  while (batches.next(batch))
    EXPECT_EQ(pool(cpu(9)).ledger().held(Category::data), 2u * 2 * 8 * 4);
  EXPECT_EQ(pool(cpu(9)).ledger().peak(Category::data), 2u * 2 * 8 * 4);
  EXPECT_EQ(pool(cpu(9)).ledger().total(), 0u);
}

TEST(Prefetch, AnErrorReachesTheOneWhoWaits) {
  const TemporaryFolder folder;
  const TokenDataset data = counting(folder, 5000, 0);
  Batches batches = data.batches({.size = 4, .context = 64, .steps = 1'000});
  Batch batch;
  EXPECT_TRUE(batches.next(batch));
  std::filesystem::resize_file(folder / "ids.bin", 2);
  const std::string error = error_of(ErrorKind::bad_input, [&] {
    while (batches.next(batch))
      continue;
  });
  EXPECT_NE(error.find("was 10000 bytes when it was opened"), std::string::npos) << error;
  EXPECT_THROW(batches.next(batch), Error) << "the error stays";
}

TEST(Data, ValidationCoversTheSplitWithoutOverlap) {
  const TemporaryFolder folder;
  const TokenDataset data = counting(folder, 100, 0.5);  // 50 … 99: 12 windows of 4 + 1
  EXPECT_EQ(data.validation_batches(5, 4), 3u);
  Values tokens, targets;
  for (uint64_t i = 0; i < 3; ++i) {
    const Batch batch = data.validation_batch(i, 5, 4);
    EXPECT_EQ(batch.tokens.shape(), (Shape{i < 2 ? 5 : 2, 4}));
    EXPECT_EQ(batch.first_sample, i * 5);
    for (const int32_t id : batch.tokens.to_vector<int32_t>())
      tokens.push_back(id);
    for (const int32_t id : batch.targets.to_vector<int32_t>())
      targets.push_back(id);
  }
  Values expected(48);
  std::iota(expected.begin(), expected.end(), 50);
  EXPECT_EQ(tokens, expected);
  for (int32_t& id : expected)
    ++id;
  EXPECT_EQ(targets, expected);
  EXPECT_THROW(data.validation_batch(3, 5, 4), Error);
}

TEST(Data, BothTokenFormatsGiveTheSameIds) {
  const TemporaryFolder folder;
  const Ids ids = {5, 50256, 0, 7, 8};
  put(folder / "bare.bin", bytes_of(ids));
  put(folder / "llmc.bin", llmc(20240520, 1, 5, ids));
  for (const char* name : {"bare.bin", "llmc.bin"}) {
    const Dataset data = open_dataset({.path = folder / name, .val_fraction = 0});
    EXPECT_EQ(data.size(), 5u);
    EXPECT_EQ(data.vocabulary(), 50257);
    EXPECT_EQ(data.training_rows({.size = 1, .context = 4}, 0, 0).tokens, (Values{5, 50256, 0, 7}));
    EXPECT_EQ(data.fingerprint(), TokenDataset(folder / "bare.bin", 50257).fingerprint());
  }
}

struct Memory : Dataset {
  Memory(int64_t vocabulary, Values ids)
      : Dataset("memory", IdTokenizer(vocabulary), tokens_in_memory(std::move(ids)), 0) {}
};

TEST(Data, IdsAre32BitsWideInMemory) {
  const Memory data(200'000, {5, 128'255, 65'536, 7, 8});
  const Rows rows = data.training_rows({.size = 1, .context = 4}, 0, 0);
  EXPECT_EQ(rows.tokens, (Values{5, 128'255, 65'536, 7}));
  EXPECT_EQ(rows.targets, (Values{128'255, 65'536, 7, 8}));
  EXPECT_EQ(rows.to_batch().tokens.dtype(), DType::i32);
  EXPECT_NE(data.fingerprint(),
            Memory(200'000, {5, 62'719, 0, 7, 8}).fingerprint());  // the same in 16 bits each
}

TEST(Data, TheFingerprintOfIdsThatFitIsThatOfTheir16Bits) {
  const TemporaryFolder folder;
  const Ids ids = {5, 50256, 0, 7, 8};
  put(folder / "ids.bin", bytes_of(ids));
  const Memory data(50257, {5, 50256, 0, 7, 8});
  EXPECT_EQ(data.fingerprint(), TokenDataset(folder / "ids.bin", 50257).fingerprint());
}

struct Bad {
  const char* name;
  std::string file;
  const char* message;
};

TEST(Data, BadTokenFilesAreRefusedAndNamed) {
  const Ids ids = {1, 2, 3};
  const std::vector<Bad> table = {
      {"empty", "", "can't be empty"},
      {"odd", bytes_of(ids) + "x", "7 bytes; a file of 16-bit ids has an even size"},
      {"id",
       bytes_of({1, 2, 50257}),
       "token 2, at byte 4, is 50257: not below the vocabulary of 50257"},
      {"id behind a header",
       llmc(20240520, 1, 3, {1, 60000, 3}),
       "token 1, at byte 1026, is 60000"},
      {"magic of 32-bit ids", llmc(20240801, 7, 3, ids), "32-bit ids (magic 20240801)"},
      {"version", llmc(20240520, 2, 3, ids), "version 2"},
      {"cut header",
       llmc(20240520, 1, 3, {}).substr(0, 512),
       "512 bytes, llm.c's header alone has 1024"},
      {"negative count", llmc(20240520, 1, -3, ids), "counts -3 tokens"},
      {"count of zero", llmc(20240520, 1, 0, {}), "counts 0 tokens"},
      {"count beyond the file",
       llmc(20240520, 1, 4, ids),
       "counts 4 tokens, 8 bytes, but 6 bytes follow"},
      {"largest count", llmc(20240520, 1, INT32_MAX, ids), "counts 2147483647 tokens"},
      {"more than the count",
       llmc(20240520, 1, 2, ids),
       "counts 2 tokens, 4 bytes, but 6 bytes follow"},
      {"odd rest", llmc(20240520, 1, 3, ids) + "x", "but 7 bytes follow"},
  };
  const TemporaryFolder folder;
  for (const Bad& bad : table) {
    put(folder / "bad.bin", bad.file);
    const std::string error =
        error_of(ErrorKind::bad_input, [&] { TokenDataset(folder / "bad.bin", 50257); });
    EXPECT_EQ(error.find(folder / "bad.bin"), 0u) << bad.name << ": " << error;
    EXPECT_NE(error.find(bad.message), std::string::npos) << bad.name << ": " << error;
  }
}

TEST(Data, AnIdThatTurnsBadWhileInUseIsCaught) {
  const TemporaryFolder folder;
  put(folder / "ids.bin", bytes_of(ascending(100)));
  const TokenDataset data(folder / "ids.bin", 100, 0);
  put(folder / "ids.bin", bytes_of(Ids(100, 9999)));
  EXPECT_NE(
      error_of(ErrorKind::bad_input, [&] { data.training_rows({.size = 1, .context = 8}, 0, 0); })
          .find("is 9999"),
      std::string::npos);
}

TEST(Data, MissingEmptyAndShortDataAreRefused) {
  const TemporaryFolder folder;
  put(folder / "empty", "");
  put(folder / "short", "0123456789");
  put(folder / "latin1", "caf\xe9");
  const auto refused = [](auto fn) { return error_of(ErrorKind::bad_input, fn); };
  EXPECT_NE(refused([&] { TextDataset(folder / "missing"); }).find("No such file"),
            std::string::npos);
  EXPECT_NE(refused([&] { TokenDataset(folder / "missing.bin", 100); }).find("No such file"),
            std::string::npos);
  EXPECT_NE(refused([&] { TextDataset(folder / "empty"); }).find("can't be empty"),
            std::string::npos);
  EXPECT_NE(refused([&] { TextDataset(folder.path()); }).find("a folder"), std::string::npos);
  EXPECT_NE(
      refused([&] { TextDataset(folder / "latin1", CharTokenizer{}); }).find("not UTF-8 at byte 3"),
      std::string::npos);

  const TextDataset data(folder / "short");  // 9 to train on, 1 to validate on
  EXPECT_NE(refused([&] {
              data.batches({.context = 9});
            }).find("9 ids to train on, fewer than one window of context 9 + 1"),
            std::string::npos);
  EXPECT_NE(refused([&] { data.validation_batches(1, 1); }).find("1 ids to validate on"),
            std::string::npos);
  EXPECT_NO_THROW(data.batches({.context = 8}));
}

TEST(Data, OptionsOutOfRangeAreUsageErrors) {
  const TextDataset data = TextDataset::of("0123456789", "text", ByteTokenizer{});
  for (const BatchOptions& o : {BatchOptions{.size = 0},
                                BatchOptions{.context = 0},
                                BatchOptions{.micro_batches = 0},
                                BatchOptions{.rank = 1},
                                BatchOptions{.rank = -1}})
    error_of(ErrorKind::usage, [&] { data.batches(o); });
  for (const double fraction : {-0.1, 1.0, std::nan("")})
    error_of(ErrorKind::usage, [&] { TextDataset::of("0123", "text", ByteTokenizer{}, fraction); });
  error_of(ErrorKind::usage, [&] { open_dataset({.tokenizer = "words"}); });
}

TEST(Data, ARestoredTokenizerKeepsItsIds) {
  const TemporaryFolder folder;
  put(folder / "text", "cab");
  const CharTokenizer trained("abcdef", "text");
  const Dataset data =
      open_dataset({.path = folder / "text", .val_fraction = 0, .restored = trained});
  EXPECT_EQ(data.vocabulary(), 6);
  EXPECT_EQ(data.training_rows({.size = 1, .context = 2}, 0, 0).targets, (Values{0, 1}));
  error_of(ErrorKind::usage, [&] {
    open_dataset({.path = folder / "text", .tokenizer = "bytes", .restored = trained});
  });
  error_of(ErrorKind::usage,
           [&] { open_dataset({.path = folder / "ids.bin", .restored = trained}); });
  put(folder / "text", "xyz");
  error_of(ErrorKind::bad_input,
           [&] { open_dataset({.path = folder / "text", .restored = trained}); });
}

TEST(Data, WithoutDataTheProjectsOwnSourcesAreTheText) {
  const std::string text = project_sources();
  EXPECT_NE(text.find("std::string project_sources()"), std::string::npos);
  EXPECT_EQ(open_dataset({}).size(), text.size());
  EXPECT_GT(open_dataset({.tokenizer = "chars"}).vocabulary(), 90);
}

}  // namespace
}  // namespace sg::models

#include "dist/checkpoint/checkpoint.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/io/safetensors.h"
#include "core/ops.h"
#include "tests/core/temporary_folder.h"
#include "tests/dist/checkpoint_ranks.h"
#include "tests/errors.h"

namespace sg::dist {
namespace {

using test::error_of;

namespace fs = std::filesystem;
using test::contents_of;
using test::on_threads;
using test::put;
using test::TemporaryFolder;
using Values = std::vector<float>;

constexpr int64_t rows = 3, columns = 4, elements = rows * columns;

// Elements [begin, end) of a parameter whose element i is base + i.
StateEntry entry(const std::string& kind, int64_t begin, int64_t end, float base = 0) {
  Values values;
  for (int64_t i = begin; i < end; ++i)
    values.push_back(base + static_cast<float>(i));
  return {"weight", kind, {rows, columns}, begin, end, from_vector(values)};
}

Checkpoint checkpoint(uint64_t step, std::vector<StateEntry> entries) {
  return {.tag = "step-" + std::to_string(step),
          .step = step,
          .numerics = R"({"seed": 7})",
          .state = R"({"losses": [1.5, 0.1]})",
          .entries = std::move(entries)};
}
void save(const std::string& folder, uint64_t step) {
  save_checkpoint(folder,
                  checkpoint(step, {entry("master", 0, elements, static_cast<float>(step))}));
}

Values read(const CheckpointReader& reader, const std::string& kind, int64_t begin, int64_t end) {
  const Tensor out = zeros({end - begin});
  reader.read("weight", kind, begin, end, out);
  return out.to_vector<float>();
}

void expect_success(const std::vector<std::exception_ptr>& errors) {
  for (const auto& error : errors)
    if (error)
      std::rethrow_exception(error);
}

TEST(Checkpoint, OneRankSavesAndLoads) {
  const TemporaryFolder folder;
  const std::string out = folder / "a/out";
  save_checkpoint(
      out, checkpoint(7, {entry("master", 0, elements), entry("moment1", 0, elements, 100)}));
  EXPECT_EQ(contents_of(out + "/latest"), "step-7\n");
  const CheckpointReader reader(out);
  EXPECT_EQ(reader.tag(), "step-7");
  EXPECT_EQ(reader.step(), 7u);
  EXPECT_EQ(reader.world(), 1);
  EXPECT_EQ(nlohmann::json::parse(reader.numerics())["seed"], 7);
  EXPECT_EQ(nlohmann::json::parse(reader.state())["losses"][1], 0.1);
  EXPECT_EQ(reader.parameters(), (std::map<std::string, Shape>{{"weight", {rows, columns}}}));
  EXPECT_TRUE(reader.parameters("moment2").empty());
  EXPECT_EQ(read(reader, "moment1", 5, 8), (Values{105, 106, 107}));
  error_of(ErrorKind::bad_input, [&] { read(reader, "moment2", 0, 1); });
  error_of(ErrorKind::usage, [&] { read(reader, "master", 0, elements + 1); });
}

// Cuts of the 12 elements; what rank r holds is [cuts[r], cuts[r + 1]).
TEST(Checkpoint, ShardsOfAnyPartitionLoadIntoAnyOther) {
  const std::vector<std::vector<int64_t>> partitions = {
      {0, 12}, {0, 5, 12}, {0, 0, 12}, {0, 1, 2, 12}, {0, 4, 8, 8, 12}};
  for (const auto& from : partitions) {
    const TemporaryFolder folder;
    const int world = static_cast<int>(from.size()) - 1;
    expect_success(on_threads(world, [&](const CheckpointRanks& ranks) {
      const size_t r = static_cast<size_t>(ranks.rank);
      save_checkpoint(folder.path(), checkpoint(1, {entry("master", from[r], from[r + 1])}), ranks);
    }));
    for (const auto& to : partitions)
      expect_success(on_threads(static_cast<int>(to.size()) - 1, [&](const CheckpointRanks& ranks) {
        const size_t r = static_cast<size_t>(ranks.rank);
        const CheckpointReader reader(folder.path(), {}, ranks);
        EXPECT_EQ(reader.world(), world);
        const StateEntry mine = entry("master", to[r], to[r + 1], -1000);
        reader.read({{mine}});
        EXPECT_EQ(mine.values.to_vector<float>(),
                  entry("master", to[r], to[r + 1]).values.to_vector<float>());
      }));
  }
}

TEST(Checkpoint, WhatAllRanksHoldIsWrittenOnceInParts) {
  const TemporaryFolder folder;
  expect_success(on_threads(3, [&](const CheckpointRanks& ranks) {
    StateEntry whole = entry("master", 0, elements),
               none{"none", "master", {0}, 0, 0, zeros({0}), true};
    whole.shared = true;
    save_checkpoint(folder.path(), checkpoint(1, {whole, none}), ranks);
  }));
  uint64_t bytes = 0;
  for (int rank = 0; rank < 3; ++rank) {
    const SafetensorsReader shard(
        folder / ("step-1/shard-0000" + std::to_string(rank) + "-of-00003.safetensors"));
    for (const auto& e : shard.entries())
      bytes += e.end - e.begin;
  }
  EXPECT_EQ(bytes, elements * sizeof(float));
  const CheckpointReader reader(folder.path());
  EXPECT_EQ(read(reader, "master", 0, elements),
            entry("master", 0, elements).values.to_vector<float>());
  EXPECT_EQ(reader.parameters().at("none"), Shape{0});
}

TEST(Checkpoint, RangesThatDoNotCoverAParameterAreNotSaved) {
  const TemporaryFolder folder;
  save(folder.path(), 1);
  const auto refused = [&](std::vector<StateEntry> entries) {
    return error_of(ErrorKind::bad_input,
                    [&] { save_checkpoint(folder.path(), checkpoint(2, std::move(entries))); });
  };
  EXPECT_NE(refused({entry("master", 0, 5), entry("master", 6, 12)})
                .find("from 5 on are there not at all"),
            std::string::npos);
  EXPECT_NE(
      refused({entry("master", 0, 7), entry("master", 6, 12)}).find("from 6 on are there twice"),
      std::string::npos);
  EXPECT_NE(refused({entry("master", 0, 11)}).find("11 of 12 elements"), std::string::npos);
  EXPECT_EQ(folder.names(), (std::vector<std::string>{"latest", "step-1"}));
}

TEST(Checkpoint, NothingIsWrittenUnlessEverythingFits) {
  const TemporaryFolder folder;
  save(folder.path(), 1);
  const CheckpointReader reader(folder.path());
  const StateEntry good = entry("master", 0, elements, -5);
  StateEntry other = entry("master", 0, elements);
  other.shape = {columns, rows};
  const std::string error = error_of(ErrorKind::bad_input, [&] { reader.read({{good, other}}); });
  EXPECT_NE(error.find("weight has shape (3, 4) there and (4, 3) here; is it another model's?"),
            std::string::npos)
      << error;
  EXPECT_NE(error_of(ErrorKind::bad_input,
                     [&] {
                       reader.read({{good, entry("moment1", 0, elements)}});
                     })
                .find("holds no moment1 of"),
            std::string::npos);
  EXPECT_EQ(good.values.to_vector<float>(),
            entry("master", 0, elements, -5).values.to_vector<float>());
}

TEST(Checkpoint, PruningKeepsAtLeastTwoAndTheNewest) {
  const TemporaryFolder folder;
  fs::create_directory(folder / "mine");
  fs::create_directory(folder / "step-9.tmp-0123456789abcdef");  // of a killed save
  for (uint64_t step = 1; step <= 4; ++step)
    save(folder.path(), step);
  EXPECT_EQ(folder.names(), (std::vector<std::string>{"latest", "mine", "step-3", "step-4"}));
  save_checkpoint(folder.path(),
                  checkpoint(2, {entry("master", 0, elements)}),
                  {},
                  0);  // gone on from an earlier step
  EXPECT_EQ(folder.names(), (std::vector<std::string>{"latest", "mine", "step-2", "step-4"}));
  EXPECT_EQ(CheckpointReader(folder.path()).tag(), "step-2");
  EXPECT_EQ(list_checkpoints(folder.path()).back().tag, "step-2");
  EXPECT_TRUE(list_checkpoints(folder / "nowhere").empty());
}

TEST(Checkpoint, TheSameTagIsReplaced) {
  const TemporaryFolder folder;
  save(folder.path(), 1);
  save_checkpoint(folder.path(), checkpoint(1, {entry("master", 0, elements, 50)}));
  EXPECT_EQ(read(CheckpointReader(folder.path()), "master", 0, 1), Values{50});
  EXPECT_EQ(folder.names(), (std::vector<std::string>{"latest", "step-1"}));
}

TEST(Checkpoint, AnotherThanTheNewestIsLoadedOnlyByItsTag) {
  const TemporaryFolder folder;
  save(folder.path(), 1);
  save(folder.path(), 2);
  EXPECT_EQ(read(CheckpointReader(folder.path(), "step-1"), "master", 0, 1), Values{1});
  fs::resize_file(folder / "step-2/manifest.json", 10);
  const std::string error =
      error_of(ErrorKind::bad_input, [&] { CheckpointReader{folder.path()}; });
  EXPECT_EQ(error.find(folder / "step-2/manifest.json"), 0u) << error;
  EXPECT_NE(error.find("others that can be asked for: step-1"), std::string::npos) << error;
}

TEST(Checkpoint, WithoutOneItSaysSo) {
  const TemporaryFolder folder;
  EXPECT_NE(error_of(ErrorKind::bad_input, [&] { CheckpointReader{folder.path()}; })
                .find("no checkpoint is here"),
            std::string::npos);
  EXPECT_NE(
      error_of(ErrorKind::bad_input, [&] { CheckpointReader{folder / "nowhere"}; }).find("no such"),
      std::string::npos);
  save(folder.path(), 1);
  error_of(ErrorKind::bad_input, [&] { CheckpointReader(folder.path(), "step-2"); });
  fs::remove(folder / "latest");  // the first save was cut off before it
  EXPECT_EQ(CheckpointReader(folder.path()).tag(), "step-1");
}

TEST(Checkpoint, RanksThatAskForDifferentOnesAreRefused) {
  const TemporaryFolder folder;
  save(folder.path(), 1);
  save(folder.path(), 2);
  const auto errors = on_threads(2, [&](const CheckpointRanks& ranks) {
    CheckpointReader reader(folder.path(), ranks.rank == 0 ? "step-1" : "step-2", ranks);
  });
  for (const auto& error : errors)
    EXPECT_THROW(error ? std::rethrow_exception(error) : void(), Error);
}

TEST(Checkpoint, TagsAndLinksThatLeadElsewhereAreRefused) {
  const TemporaryFolder folder;
  save(folder / "out", 1);
  fs::rename(folder / "out/step-1", folder / "elsewhere");
  fs::create_symlink(folder / "elsewhere", folder / "out/step-1");
  fs::create_directory_symlink(folder / "out", folder / "link");
  const std::vector<std::string> tags = {"../elsewhere",
                                         "a/../step-1",
                                         "/etc",
                                         std::string("step-1\0x", 8),
                                         ".",
                                         "..",
                                         "latest",
                                         "a/b",
                                         "step-1/",
                                         "a.tmp-0",
                                         "",
                                         std::string(101, 'a'),
                                         "\xc3\xa9"};
  for (const std::string& tag : tags) {
    Checkpoint bad = checkpoint(1, {entry("master", 0, elements)});
    bad.tag = tag;
    error_of(ErrorKind::usage, [&] { save_checkpoint(folder / "out", bad); });
    put(folder / "out/latest", tag + "\n");
    error_of(ErrorKind::bad_input, [&] { CheckpointReader(folder / "out"); });
    if (!tag.empty())
      error_of(ErrorKind::bad_input, [&] { CheckpointReader(folder / "out", tag); });
  }
  for (const std::string& path : {folder / "out", folder / "link", folder / "link/"}) {
    const std::string error =
        error_of(ErrorKind::bad_input, [&] { CheckpointReader(path, "step-1"); });
    EXPECT_NE(error.find("a symbolic link"), std::string::npos) << error;
    error_of(ErrorKind::usage, [&] { save(path, 1); });
  }
  EXPECT_EQ(folder.names(), (std::vector<std::string>{"elsewhere", "link", "out"}));
}

}  // namespace
}  // namespace sg::dist

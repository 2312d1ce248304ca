// What checkpoint.h promises of saves and loads that fail, of state of another kind, and of what
// isn't the run's own.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "core/io/atomic_file.h"
#include "core/io/hash.h"
#include "core/ops.h"
#include "dist/checkpoint/checkpoint.h"
#include "tests/core/temporary_folder.h"
#include "tests/dist/checkpoint_ranks.h"
#include "tests/dist/tiny_model.h"
#include "tests/errors.h"

namespace sg::dist::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::error_of;
using test::TemporaryFolder;

Checkpoint one_value(const std::string& tag, float x, const std::string& run = {}) {
  return {.tag = tag,
          .step = static_cast<uint64_t>(x),
          .run = run,
          .entries = {{"w", "master", {4}, 0, 4, full({4}, x)}}};
}

float value_of(const std::string& folder, const std::string& tag = {}) {
  const CheckpointReader reader(folder, tag);
  const Tensor w = zeros({4});
  reader.read("w", "master", 0, 4, w);
  return w.to_vector<float>()[0];
}

TEST(CheckpointPromises, AFailedSaveLeavesItsTagAndLatestAsTheyWere) {
  for (const std::string tag : {"a", "b"})
    for (const char* failing : {"rename", "fsync"}) {
      const TemporaryFolder folder;
      save_checkpoint(folder.path(), one_value("a", 1));
      bool newest = false, failed = false;  // newest: latest is being written
      set_file_fault([&](std::string_view call, const std::string& path) {
        newest |= path.find("/latest") != std::string::npos;
        const bool fails = newest && call == failing && !failed;
        failed |= fails;
        return fails ? ENOSPC : 0;
      });
      error_of(ErrorKind::io, [&] { save_checkpoint(folder.path(), one_value(tag, 2)); });
      set_file_fault({});
      EXPECT_EQ(value_of(folder.path()), 1) << tag << ", " << failing;
      EXPECT_EQ(value_of(folder.path(), "a"), 1) << tag << ", " << failing;
      EXPECT_EQ(list_checkpoints(folder.path()).size(), 1u) << tag << ", " << failing;
    }
}

TEST(CheckpointPromises, AnyExceptionOfOneRankFailsTheSaveOnAll) {
  for (const int kind : {0, 1, 2}) {
    const TemporaryFolder folder;
    set_file_fault([&](std::string_view, const std::string& path) -> int {
      if (path.find("shard-00001") == std::string::npos)
        return 0;
      if (kind == 0)
        throw std::bad_alloc();
      if (kind == 1)
        throw std::runtime_error("not one of ours");
      throw 7;
    });
    const auto errors = test::on_threads(2, [&](const CheckpointRanks& ranks) {
      Checkpoint checkpoint = one_value("a", 1);
      checkpoint.entries[0].shared = true;
      save_checkpoint(folder.path(), checkpoint, ranks);
    });
    set_file_fault({});
    for (const std::exception_ptr& error : errors)
      EXPECT_TRUE(error) << kind;
    EXPECT_TRUE(fs::is_empty(folder.path())) << kind;
  }
}

TEST(CheckpointPromises, ASaveRemovesOnlyItsOwnRunsCheckpointsAndLeftovers) {
  const TemporaryFolder folder;
  const char* const foreign[] = {"thesis.tmp-0123456789ABCDEF",
                                 "photos.tmp-holiday-in-2026",
                                 "a.tmp-0123456789abcdef",
                                 "notes.tmp-not-a-hex-digits"};
  for (const char* name : foreign) {
    fs::create_directory(folder / name);
    test::put(folder / name + "/x", "precious");
  }
  test::put(folder / "b.tmp-0123456789abcdef", "precious");
  fs::create_directory(folder / "step-7.tmp-0123456789abcdef");
  test::put(folder / "step-7.tmp-0123456789abcdef/shard-00000-of-00001.safetensors",
            "of a killed save");
  for (int i = 1; i < 4; ++i)
    save_checkpoint(folder.path(), one_value("old" + std::to_string(i), 1, "another"), {}, 9);
  for (int i = 1; i < 5; ++i)
    save_checkpoint(folder.path(), one_value("new" + std::to_string(i), 2, "this"));
  for (const char* name : foreign)
    EXPECT_TRUE(fs::exists(folder / name + "/x")) << name;
  EXPECT_TRUE(fs::exists(folder / "b.tmp-0123456789abcdef"));
  EXPECT_FALSE(fs::exists(folder / "step-7.tmp-0123456789abcdef"));
  std::vector<std::string> tags;
  for (const CheckpointName& name : list_checkpoints(folder.path()))
    tags.push_back(name.tag);
  EXPECT_EQ(tags, (std::vector<std::string>{"old1", "old2", "old3", "new3", "new4"}));
}

Training training(const std::string& optimizer, DType precision) {
  Training r;
  r.options.engine = EngineKind::ddp;
  r.options.optimizer.type = optimizer;
  r.options.precision = precision;
  r.ranks = 1, r.steps = 1;
  return r;
}

TEST(CheckpointPromises, StateIsTakenByItsOwnOptimizerAndPrecisionAlone) {
  const std::pair<const char*, DType> kinds[] = {{"sgd", DType::f32},
                                                 {"lion", DType::f32},
                                                 {"adam", DType::f32},
                                                 {"adamw", DType::f32},
                                                 {"adamw", DType::bf16}};
  for (const auto& [optimizer, precision] : kinds) {
    const TemporaryFolder folder;
    train(training(optimizer, precision), [&](Engine& e, int) { e.save(folder.path()); });
    for (const auto& [other, other_precision] : kinds)
      train(training(other, other_precision), [&](Engine& e, int) {
        if (std::string(other) == optimizer && other_precision == precision)
          return e.load(folder.path());
        error_of(ErrorKind::bad_input, [&] { e.load(folder.path()); });
      });
  }
}

TEST(CheckpointPromises, AFailedLoadChangesNothing) {
  train(training("adamw", DType::f32), [&](Engine& e, int) {
    const TemporaryFolder folder;
    e.save(folder.path(), "t");
    const CheckpointReader reader(folder.path(), "t");
    const std::vector<StateEntry> state = e.state();
    for (const StateEntry& entry : state)
      fill_(entry.values, 5);
    const std::string shard = folder / "t/shard-00000-of-00001.safetensors";
    fs::resize_file(shard, fs::file_size(shard) - 4);
    error_of(ErrorKind::bad_input, [&] { e.load(reader); });
    for (const StateEntry& entry : state) {
      if (entry.values.numel() > 0) {
        EXPECT_EQ(entry.values.to_vector<float>()[0], 5) << entry.parameter;
      }
    }
  });
}

TEST(CheckpointPromises, ASlowDiskIsNoDeadRank) {
  for (const bool beside : {false, true}) {
    const TemporaryFolder folder;
    CommOptions options;
    options.ranks = 2, options.timeout = 1;
    std::atomic<bool> slow{true};
    set_file_fault([&](std::string_view call, const std::string& path) {
      if (call == "fsync" && path.find("shard-00000-of-00002") != std::string::npos &&
          slow.exchange(false))
        std::this_thread::sleep_for(std::chrono::milliseconds(2500));
      return 0;
    });
    run_threads(options, [&](Comm& comm) {
      const TinyModel model(true, true);
      auto engine = initialize(model.units(), {.engine = EngineKind::zero1}, comm);
      if (!beside)
        return engine->save(folder.path());
      AsyncSaver saver(engine->state(), ranks_of(comm));
      saver.start(folder.path(), checkpoint_of(*engine));
      saver.wait();
    });
    set_file_fault({});
    EXPECT_FALSE(slow) << "nothing was slow";
    EXPECT_EQ(list_checkpoints(folder.path()).size(), 1u);
  }
}

// The manifest with a right hash.
void change_manifest(const std::string& path, const std::function<void(json&)>& change) {
  json content = json::parse(test::contents_of(path));
  content.erase("sha256");
  change(content);
  content["sha256"] = sha256(content.dump());
  test::put(path, content.dump());
}

TEST(CheckpointPromises, AManifestOfWrongTypesIsNamed) {
  const std::pair<const char*, json> cases[] = {{"/engine/t", "seven"},
                                                {"/engine/t", -1},
                                                {"/engine/t", 1.5},
                                                {"/engine/steps", json::array()},
                                                {"/engine/lr", "fast"},
                                                {"/engine/lr", {}},
                                                {"/engine/optimizer", 3},
                                                {"/engine/precision", true},
                                                {"/engine", "none"},
                                                {"/numerics", {1, 2}},
                                                {"/state", 3},
                                                {"/run", 3},
                                                {"/shards", json::object()}};
  train(training("adamw", DType::f32), [&](Engine& e, int) {
    const TemporaryFolder folder;
    e.save(folder.path(), "t");
    const std::string manifest = folder / "t/manifest.json", good = test::contents_of(manifest);
    for (const auto& [pointer, value] : cases) {
      change_manifest(manifest, [&, p = pointer, v = value](json& content) {
        content[json::json_pointer(p)] = v;
      });
      const std::string message =
          error_of(ErrorKind::bad_input, [&] { e.load(folder.path(), "t"); });
      EXPECT_EQ(message.find("json.exception"), std::string::npos) << message;
      test::put(manifest, good);
    }
    e.load(folder.path(), "t");
  });
}

}  // namespace
}  // namespace sg::dist::testing

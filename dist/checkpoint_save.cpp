#include <spdlog/spdlog.h>

#include <algorithm>
#include <filesystem>

#include "core/atomic_file.h"
#include "core/input_file.h"
#include "dist/checkpoint.h"
#include "dist/checkpoint_manifest.h"
#include "dist/checkpoint_ranks.h"
#include "dist/checkpoint_shards.h"

namespace sg::dist {
namespace {

constexpr size_t suffix_length = 5 + 16;  // of unique_suffix()

// What this rank writes: its own runs, and rank r's part of those that all ranks share.
std::vector<StateEntry> part_of(const std::vector<StateEntry>& entries, int rank, int world) {
  std::vector<StateEntry> parts;
  for (const StateEntry& e : entries) {
    const int64_t n = e.end - e.begin, from = e.shared ? n * rank / world : 0,
                  to = e.shared ? n * (rank + 1) / world : n;
    if (e.shared && from == to && (n > 0 || rank > 0)) continue;  // an empty parameter is rank 0's
    StateEntry part = e;
    part.begin = e.begin + from;
    part.end = e.begin + to;
    part.values = e.values.slice(0, from, to);
    parts.push_back(part);
  }
  return parts;
}

// Rank 0: makes `temporary`.
void begin_save(const std::string& folder, const std::string& path, const std::string& temporary) {
  create_folders(folder);
  check_folder(folder, ErrorKind::usage);
  if (exists(path)) check_folder(path, ErrorKind::usage);
  create_folders(temporary);
}

// Rank 0: what is in `temporary` becomes DIR/<tag>, then the newest.
void commit(const std::string& folder, const Checkpoint& checkpoint, const std::string& temporary,
            const std::vector<ShardFile>& shards) {
  const std::string path = folder + "/" + checkpoint.tag;
  ShardIndex(temporary, checkpoint.tag, checkpoint.step, static_cast<int>(shards.size()));  // it will load
  const auto others = list_checkpoints(folder);
  FileWriter manifest(manifest_path(temporary));
  manifest.write(to_text({.tag = checkpoint.tag,
                          .step = checkpoint.step,
                          .sequence = others.empty() ? 1 : others.back().sequence + 1,
                          .numerics = checkpoint.numerics,
                          .engine = checkpoint.engine,
                          .state = checkpoint.state,
                          .shards = shards}));
  manifest.finish();
  sync_folder(temporary);
  if (exists(path)) exchange_durably(temporary, path);
  else rename_durably(temporary, path);
  write_file_atomically(folder + "/latest", checkpoint.tag + "\n");
}

// Renamed first: a kill half-way leaves no checkpoint that lacks a shard.
void prune_one(const std::string& path) {
  const std::string doomed = path + unique_suffix();
  rename_durably(path, doomed);
  remove_tree(doomed);
}

// Rank 0: removes all but the last `keep` checkpoints, and what killed saves left.
void prune(const std::string& folder, const std::string& newest, int keep) {
  auto checkpoints = list_checkpoints(folder);
  checkpoints.resize(checkpoints.size() - std::min<size_t>(checkpoints.size(), static_cast<size_t>(std::max(keep, 2))));
  for (const CheckpointName& old : checkpoints)
    if (old.tag != newest) prune_one(folder + "/" + old.tag);
  std::vector<std::string> leftovers;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    const size_t suffix = name.rfind(".tmp-");
    if (suffix != std::string::npos && suffix + suffix_length == name.size())
      leftovers.push_back(entry.path().string());
  }
  for (const std::string& path : leftovers) remove_tree(path);
}

void remove_quietly(const std::string& path) {
  try {
    remove_tree(path);
  } catch (const Error& e) { spdlog::warn("checkpoint: {}", e.what()); }
}

}  // namespace

void save_checkpoint(const std::string& folder, const Checkpoint& checkpoint, const CheckpointRanks& ranks, int keep) {
  const int rank = ranks.rank, world = ranks.size;
  const std::string path = folder + "/" + checkpoint.tag;
  std::string temporary;  // rank 0's choice; empty until the tag is known to be good
  try {
    const auto begun = together(ranks, [&] {
      const std::string suffix = unique_suffix();
      if (rank == 0) {
        check_tag(checkpoint.tag, ErrorKind::usage);
        temporary = path + suffix;
        begin_save(folder, path, temporary);
      }
      return suffix;
    });
    temporary = path + begun[0];

    const auto written = together(ranks, [&] {
      const ShardFile shard =
          write_shard(shard_path(temporary, rank, world), {checkpoint.tag, checkpoint.step, rank, world},
                      part_of(checkpoint.entries, rank, world));
      return shard.sha256 + std::to_string(shard.bytes);
    });
    std::vector<ShardFile> shards;
    for (const std::string& text : written) shards.push_back({std::stoull(text.substr(64)), text.substr(0, 64)});
    together(ranks, [&] {
      if (rank == 0) commit(folder, checkpoint, temporary, shards);
      return std::string();
    });
  } catch (...) {
    if (rank == 0 && !temporary.empty()) remove_quietly(temporary);
    throw;
  }
  if (rank > 0) return;
  try {
    prune(folder, checkpoint.tag, keep);
  } catch (const std::exception& e) {
    spdlog::warn("checkpoint: {} is saved, but old ones could not be removed: {}", path, e.what());
  }
}

}  // namespace sg::dist

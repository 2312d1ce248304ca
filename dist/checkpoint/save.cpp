#include "dist/checkpoint/save.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <filesystem>

#include "core/io/atomic_file.h"
#include "core/ops.h"
#include "dist/checkpoint/manifest.h"
#include "dist/checkpoint/ranks.h"
#include "dist/checkpoint/shards.h"

namespace sg::dist {
namespace {

constexpr size_t suffix_length = 5 + 16;  // of unique_suffix()

// Renamed first: a kill half-way leaves no checkpoint that lacks a shard.
void prune_one(const std::string& path) {
  const std::string doomed = path + unique_suffix();
  rename_durably(path, doomed);
  remove_tree(doomed);
}

// Removes all but the last `keep` checkpoints, and what killed saves left.
void prune_folder(const std::string& folder, const std::string& newest, int keep) {
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

}  // namespace

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

Save::Save(std::string folder, Checkpoint checkpoint, int rank, int world, int keep)
    : folder_(std::move(folder)), checkpoint_(std::move(checkpoint)), rank_(rank), world_(world), keep_(keep) {
  checkpoint_.entries = part_of(checkpoint_.entries, rank_, world_);
}

std::string Save::begin() {
  const std::string suffix = unique_suffix();
  if (rank_ > 0) return suffix;
  check_tag(checkpoint_.tag, ErrorKind::usage);
  temporary_ = path() + suffix;
  create_folders(folder_);
  check_folder(folder_, ErrorKind::usage);
  if (exists(path())) check_folder(path(), ErrorKind::usage);
  create_folders(temporary_);
  return suffix;
}

void Save::choose(const std::vector<std::string>& begun) { temporary_ = path() + begun[0]; }

void Save::copy_into(const std::vector<Tensor>& copies) {
  invariant(copies.size() == checkpoint_.entries.size(), "checkpoint: {} entries, room for {}",
            checkpoint_.entries.size(), copies.size());
  for (size_t i = 0; i < copies.size(); ++i) {
    Tensor& values = checkpoint_.entries[i].values;
    invariant(copies[i].shape() == values.shape() && copies[i].dtype() == values.dtype(),
              "checkpoint: {} of {}: {} values, room for {}", checkpoint_.entries[i].kind,
              checkpoint_.entries[i].parameter, values.shape(), copies[i].shape());
    copy_(copies[i], values);
    values = copies[i];
  }
}

std::string Save::write() {
  const ShardFile shard =
      write_shard(shard_path(temporary_, rank_, world_), {checkpoint_.tag, checkpoint_.step, rank_, world_},
                  checkpoint_.entries, given_up_);
  return shard.sha256 + std::to_string(shard.bytes);
}

void Save::commit(const std::vector<std::string>& written) {
  if (rank_ > 0) return;
  std::vector<ShardFile> shards;
  for (const std::string& text : written) shards.push_back({std::stoull(text.substr(64)), text.substr(0, 64)});
  ShardIndex(temporary_, checkpoint_.tag, checkpoint_.step, world_);  // it will load
  const auto others = list_checkpoints(folder_);
  FileWriter manifest(manifest_path(temporary_));
  manifest.write(to_text({.tag = checkpoint_.tag,
                          .step = checkpoint_.step,
                          .sequence = others.empty() ? 1 : others.back().sequence + 1,
                          .numerics = checkpoint_.numerics,
                          .engine = checkpoint_.engine,
                          .state = checkpoint_.state,
                          .shards = shards}));
  manifest.finish();
  sync_folder(temporary_);
  if (exists(path())) exchange_durably(temporary_, path());
  else rename_durably(temporary_, path());
  write_file_atomically(folder_ + "/latest", checkpoint_.tag + "\n");
}

void Save::prune() const {
  if (rank_ > 0) return;
  try {
    prune_folder(folder_, checkpoint_.tag, keep_);
  } catch (const std::exception& e) {
    spdlog::warn("checkpoint: {} is saved, but old ones could not be removed: {}", path(), e.what());
  }
}

void Save::abandon() const {
  if (rank_ > 0 || temporary_.empty()) return;
  try {
    remove_tree(temporary_);
  } catch (const Error& e) { spdlog::warn("checkpoint: {}", e.what()); }
}

void save_checkpoint(const std::string& folder, const Checkpoint& checkpoint, const CheckpointRanks& ranks, int keep) {
  Save save(folder, checkpoint, ranks.rank, ranks.size, keep);
  try {
    save.choose(together(ranks, [&] { return save.begin(); }));
    const auto written = together(ranks, [&] { return save.write(); });
    together(ranks, [&] {
      save.commit(written);
      return std::string();
    });
  } catch (...) {
    save.abandon();
    throw;
  }
  save.prune();
}

}  // namespace sg::dist

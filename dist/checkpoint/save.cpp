#include "dist/checkpoint/save.h"

#include <spdlog/spdlog.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>

#include "core/io/atomic_file.h"
#include "core/io/input_file.h"
#include "core/ops.h"
#include "dist/checkpoint/manifest.h"
#include "dist/checkpoint/ranks.h"
#include "dist/checkpoint/shards.h"

namespace sg::dist {
namespace {

constexpr size_t suffix_length = 5 + 16;  // of unique_suffix()

std::optional<std::string> contents_of(const std::string& path) {
  if (!exists(path))
    return std::nullopt;
  return read_file(path, 4096);
}

uint64_t inode_of(const std::string& path) {
  struct stat status;
  return ::lstat(path.c_str(), &status) == 0 ? status.st_ino : 0;
}

// The name that a temporary one of ours was made for; empty: it is none.
std::string made_for(const std::string& name) {
  const size_t suffix = name.rfind(".tmp-");
  if (suffix == std::string::npos || suffix + suffix_length != name.size())
    return {};
  const auto is_hex = [](char c) { return ('0' <= c && c <= '9') || ('a' <= c && c <= 'f'); };
  return std::all_of(name.begin() + static_cast<std::ptrdiff_t>(suffix) + 5, name.end(), is_hex)
             ? name.substr(0, suffix)
             : std::string();
}

// What a killed save left: a folder of shards and a manifest under a tag's temporary name, or
// `latest` half written. Anything else that lies here is somebody's own.
bool is_leftover(const std::filesystem::directory_entry& entry) {
  const std::string target = made_for(entry.path().filename().string());
  if (target.empty() || entry.is_symlink())
    return false;
  if (entry.is_regular_file())
    return target == "latest" || target == "metrics.jsonl";
  if (!entry.is_directory())
    return false;
  const auto files = std::filesystem::directory_iterator(entry.path());
  const bool ours =
      std::all_of(begin(files), end(files), [](const std::filesystem::directory_entry& file) {
        const std::string name = file.path().filename().string();
        return file.is_regular_file() && !file.is_symlink() &&
               (name == "manifest.json" ||
                (name.starts_with("shard-") && name.ends_with(".safetensors")));
      });
  return ours && is_tag(target) &&
         (!std::filesystem::is_empty(entry.path()) || target.starts_with("step-"));
}

// Renamed first: a kill half-way leaves no checkpoint that lacks a shard.
void prune_one(const std::string& path) {
  const std::string doomed = path + unique_suffix();
  rename_durably(path, doomed);
  remove_tree(doomed);
}

// Removes all but the last `keep` checkpoints of this run, and what killed saves left.
void prune_folder(const std::string& folder, const Checkpoint& newest, int keep) {
  auto checkpoints = list_checkpoints(folder);
  std::erase_if(checkpoints, [&](const CheckpointName& name) { return name.run != newest.run; });
  checkpoints.resize(checkpoints.size() -
                     std::min<size_t>(checkpoints.size(), static_cast<size_t>(std::max(keep, 2))));
  for (const CheckpointName& old : checkpoints)
    if (old.tag != newest.tag)
      prune_one(folder + "/" + old.tag);
  std::vector<std::string> leftovers;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (is_leftover(entry))
      leftovers.push_back(entry.path().string());
  for (const std::string& path : leftovers)
    remove_tree(path);
}

}  // namespace

std::vector<StateEntry> part_of(const std::vector<StateEntry>& entries, int rank, int world) {
  std::vector<StateEntry> parts;
  for (const StateEntry& e : entries) {
    const int64_t n = e.end - e.begin, from = e.shared ? n * rank / world : 0,
                  to = e.shared ? n * (rank + 1) / world : n;
    if (e.shared && from == to && (n > 0 || rank > 0))
      continue;  // an empty parameter is rank 0's
    StateEntry part = e;
    part.begin = e.begin + from;
    part.end = e.begin + to;
    part.values = e.values.slice(0, from, to);
    parts.push_back(part);
  }
  return parts;
}

Save::Save(std::string folder, Checkpoint checkpoint, int rank, int world, int keep)
    : folder_(std::move(folder)),
      checkpoint_(std::move(checkpoint)),
      rank_(rank),
      world_(world),
      keep_(keep) {}

std::string Save::begin() {
  checkpoint_.entries = part_of(checkpoint_.entries, rank_, world_);
  const std::string suffix = unique_suffix();
  if (rank_ > 0)
    return suffix;
  check_tag(checkpoint_.tag, ErrorKind::usage);
  temporary_ = path() + suffix;
  create_folders(folder_);
  check_folder(folder_, ErrorKind::usage);
  if (exists(path()))
    check_folder(path(), ErrorKind::usage);
  create_folders(temporary_);
  return suffix;
}

void Save::choose(const std::vector<std::string>& begun) {
  temporary_ = path() + begun[0];
}

void Save::copy_into(const std::vector<Tensor>& copies) {
  invariant(copies.size() == checkpoint_.entries.size(),
            "checkpoint: {} entries, room for {}",
            checkpoint_.entries.size(),
            copies.size());
  for (size_t i = 0; i < copies.size(); ++i) {
    Tensor& values = checkpoint_.entries[i].values;
    invariant(copies[i].shape() == values.shape() && copies[i].dtype() == values.dtype(),
              "checkpoint: {} of {}: {} values, room for {}",
              checkpoint_.entries[i].kind,
              checkpoint_.entries[i].parameter,
              values.shape(),
              copies[i].shape());
    copy_(copies[i], values);
    values = copies[i];
  }
}

std::string Save::write() {
  const ShardFile shard = write_shard(shard_path(temporary_, rank_, world_),
                                      {checkpoint_.tag, checkpoint_.step, rank_, world_},
                                      checkpoint_.entries,
                                      given_up_,
                                      checkpoint_.values);
  return shard.sha256 + std::to_string(shard.bytes);
}

void Save::commit(const std::vector<std::string>& written) {
  if (rank_ > 0)
    return;
  std::vector<ShardFile> shards;
  for (const std::string& text : written)
    shards.push_back({std::stoull(text.substr(64)), text.substr(0, 64)});
  ShardIndex(temporary_, checkpoint_.tag, checkpoint_.step, world_);  // it will load
  const auto others = list_checkpoints(folder_);
  FileWriter manifest(manifest_path(temporary_));
  manifest.write(to_text({.tag = checkpoint_.tag,
                          .step = checkpoint_.step,
                          .sequence = others.empty() ? 1 : others.back().sequence + 1,
                          .numerics = checkpoint_.numerics,
                          .engine = checkpoint_.engine,
                          .state = checkpoint_.state,
                          .run = checkpoint_.run,
                          .shards = shards}));
  manifest.finish();
  sync_folder(temporary_);
  make_newest();
}

// In its place under its tag, and what `latest` names; or neither.
void Save::make_newest() const {
  const std::optional<std::string> latest = contents_of(latest_path());
  const uint64_t mine = inode_of(temporary_);
  try {
    if (exists(path()))
      exchange_durably(temporary_, path());
    else
      rename_durably(temporary_, path());
    write_file_atomically(latest_path(), checkpoint_.tag + "\n");
  } catch (...) {
    take_back(latest, mine);
    throw;
  }
}

// `latest` first, so that a kill in between leaves it a checkpoint to name.
void Save::take_back(const std::optional<std::string>& latest, uint64_t mine) const {
  try {
    if (contents_of(latest_path()) != latest) {
      if (latest)
        write_file_atomically(latest_path(), *latest);
      else
        remove_tree(latest_path());
    }
    if (inode_of(path()) != mine)
      return;
    if (exists(temporary_))
      exchange_durably(temporary_, path());
    else
      rename_durably(path(), temporary_);
  } catch (const std::exception& e) {
    spdlog::warn("checkpoint: {} is half saved: {}", path(), e.what());
  }
}

void Save::prune() const {
  if (rank_ > 0)
    return;
  try {
    prune_folder(folder_, checkpoint_, keep_);
  } catch (const std::exception& e) {
    spdlog::warn(
        "checkpoint: {} is saved, but old ones could not be removed: {}", path(), e.what());
  }
}

void Save::abandon() const {
  if (rank_ > 0 || temporary_.empty())
    return;
  try {
    remove_tree(temporary_);
  } catch (const std::exception& e) {
    spdlog::warn("checkpoint: {}", e.what());
  }
}

void save_checkpoint(const std::string& folder,
                     const Checkpoint& checkpoint,
                     const CheckpointRanks& ranks,
                     int keep) {
  Save save(folder, checkpoint, ranks.rank, ranks.size, keep);
  try {
    save.choose(run_file_work_on_all(ranks, [&] { return save.begin(); }));
    const auto written = run_file_work_on_all(ranks, [&] { return save.write(); });
    run_file_work_on_all(ranks, [&] {
      save.commit(written);
      return std::string();
    });
  } catch (...) {
    save.abandon();
    throw;
  }
  const std::shared_ptr<void> busy = ranks.busy ? ranks.busy() : nullptr;
  save.prune();
}

}  // namespace sg::dist

// Internal to dist/checkpoint: the steps of a save, whoever runs them and when.
#pragma once
#include <atomic>
#include <optional>
#include <string>
#include <vector>

#include "dist/checkpoint/checkpoint.h"

namespace sg::dist {

// What rank `rank` writes: its own runs, and its share of those that all ranks hold.
std::vector<StateEntry> part_of(const std::vector<StateEntry>& entries, int rank, int world);

// One rank's part of a save: begin; then write on every rank; then, when all have written, commit
// on rank 0; finally prune. abandon instead of what is left, after a failure.
class Save {
 public:
  Save(std::string folder, Checkpoint checkpoint, int rank, int world, int keep);

  // Each rank's answer is for choose(), as all ranks know them.
  std::string begin();
  void choose(const std::vector<std::string>& begun);
  void copy_into(const std::vector<Tensor>& copies);  // and save those: one per entry of part_of

  // Writes this rank's shard. The answer is for commit(). Error io once give_up() was called.
  std::string write();
  void give_up() { given_up_ = true; }
  // Rank 0 makes the checkpoint the newest; others do nothing.
  void commit(const std::vector<std::string>& written);

  void prune() const;    // rank 0; a failure is a warning
  void abandon() const;  // rank 0: the temporary folder goes; a failure is a warning

 private:
  std::string path() const { return folder_ + "/" + checkpoint_.tag; }
  std::string latest_path() const { return folder_ + "/latest"; }
  void make_newest() const;
  void take_back(const std::optional<std::string>& latest, uint64_t mine) const;

  const std::string folder_;
  Checkpoint checkpoint_;
  const int rank_, world_, keep_;
  std::string temporary_;  // rank 0's choice; empty until the tag is known to be good
  std::atomic<bool> given_up_{false};
};

}  // namespace sg::dist

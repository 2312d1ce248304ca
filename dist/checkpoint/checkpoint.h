// Checkpoints: what an engine needs to go on with the same bits, sharded over ranks, written so
// that a kill at any point leaves the newest complete one loadable.
//
//   DIR/latest               the newest one's tag, one line
//   DIR/<tag>/manifest.json  step, world, numerics, engine, state; every shard's size and SHA-256;
//                            its own SHA-256
//   DIR/<tag>/shard-00000-of-00002.safetensors
//                            rank 0's entries; which ranges of which parameters they are: "piece:"
//                            entries of its metadata
//
// Order of a save: shards into DIR/<tag>.tmp-<unique>/, hashed while written, each fsynced; all
// ranks agree; rank 0 writes the manifest, fsyncs it and the folder, renames the folder, fsyncs
// DIR, replaces `latest`; only then old ones are pruned. A folder belongs to one run at a time.
#pragma once
#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "dist/engine.h"

namespace sg::dist {

class Save;        // save.h
class ShardIndex;  // shards.h

// The ranks that save or load together; by default this process alone.
struct CheckpointRanks {
  int rank = 0, size = 1;
  // Collective: takes this rank's text, gives every rank's in rank order.
  std::function<std::vector<std::string>(const std::string&)> exchange{};
  // What is held while this rank works on files, so that the others wait for it as long as that
  // takes; may be empty.
  std::function<std::shared_ptr<void>()> busy{};
};
inline CheckpointRanks ranks_of(Comm& comm) {
  return {comm.rank(),
          comm.size(),
          [&comm](const std::string& text) {
            return comm.all_gather_bytes({"checkpoint", Phase::save}, text);
          },
          [&comm] { return std::make_shared<Comm::Busy>(comm); }};
}

struct Checkpoint {
  std::string tag;  // letters, digits and . _ -; not "latest"
  uint64_t step = 0;
  // JSON objects, of which rank 0's are saved: what bits depend on, the engine's scalars, and the
  // program's own.
  std::string numerics = "{}", engine = "{}", state = "{}";
  std::string run{};  // which run this is of: a save removes only its own run's older ones
  // This rank's. Ranks hold disjoint ranges, or share them, and then each writes a part; over all
  // ranks every parameter is there from end to end.
  std::vector<StateEntry> entries{};
  // Gives an entry's values when they are written; its own lie on meta then. Empty: they are its
  // own. (save_checkpoint alone, of one rank.)
  std::function<Tensor(const StateEntry&)> values{};
};

// What an engine has to save, as views of its memory. Collective, between steps. An empty tag:
// "step-000012".
Checkpoint checkpoint_of(Engine& engine, const std::string& tag = {});

// Collective. All ranks succeed, or all throw: the first failing rank's error (io; usage for a bad
// tag) with its number; the old checkpoints are then as they were and the temporary folder is gone.
// A checkpoint of the same tag is replaced in one step. Keeps at least two, and what `latest`
// names; a failure to prune is a warning.
void save_checkpoint(const std::string& folder,
                     const Checkpoint& checkpoint,
                     const CheckpointRanks& ranks = {},
                     int keep = 2);

// Saves beside training: training stops only while this rank's part is copied into host memory.
// Hashing and writing follow on a thread; the commit too, on rank 0, once all ranks are known to
// have written, which they tell each other in poll. So the protocol is save_checkpoint's, and the
// files are.
//
//   AsyncSaver saver(engine->state(), ranks_of(comm));
//   saver.start("out", checkpoint_of(*engine));
//   after each step: if (saver.poll()) … it is the newest
//
// Every member is collective, between steps, and its errors are the same on all ranks. An error of
// a save, as save_checkpoint's, comes from whichever call learns of it and ends that save: the old
// checkpoints are as they were and the temporary folder is gone.
class AsyncSaver {
 public:
  // Takes host memory for this rank's part of such entries, booked as optimizer until the end.
  // Error out_of_memory.
  explicit AsyncSaver(const std::vector<StateEntry>& entries, const CheckpointRanks& ranks = {});
  ~AsyncSaver();  // not collective: a save whose commit hasn't begun is given up
  AsyncSaver(const AsyncSaver&) = delete;
  AsyncSaver& operator=(const AsyncSaver&) = delete;

  // Waits for the save before it. The entries are those of the constructor, with what they hold
  // now.
  void start(const std::string& folder, const Checkpoint& checkpoint, int keep = 2);
  bool poll();  // never waits for files; true: nothing is under way any more
  void wait();  // until that
  // Not collective: whether a poll would only learn that this rank still writes. Ranks that tell
  // each other by a message that they exchange anyway (Engine::raise_flags) needn't poll before all
  // are done.
  bool busy() const;
  bool under_way() const { return save_ != nullptr; }

 private:
  void run(std::function<std::string()> part);
  bool advance(const std::string& mine);

  const CheckpointRanks ranks_;
  std::vector<Tensor> copies_;  // in host memory, by entry
  std::future<void> touched_;   // they are backed by pages
  std::unique_ptr<Save> save_;
  bool committing_ = false;                  // else writing
  std::shared_future<std::string> outcome_;  // of the part on the thread
};

struct CheckpointName {
  std::string tag;
  uint64_t step = 0, sequence = 0;  // sequence: saves into the folder are counted
  std::string run{};
};
// Those with a valid manifest, oldest first. A folder that isn't there has none.
std::vector<CheckpointName> list_checkpoints(const std::string& folder);

// An open checkpoint, already held against its manifest: sizes, hashes (each rank hashes its part
// of the shards), headers, the ranges of every parameter. Errors: bad_input, the same on every
// rank, naming the file; a damaged one is never passed over for an older one.
class CheckpointReader {
 public:
  // Without a tag: the one that `latest` names, else (the first save was cut off before it) the
  // newest. Collective.
  explicit CheckpointReader(const std::string& folder,
                            const std::string& tag = {},
                            const CheckpointRanks& ranks = {});
  ~CheckpointReader();

  const std::string& path() const { return path_; }  // DIR/<tag>
  const std::string& tag() const { return tag_; }
  uint64_t step() const { return step_; }
  int world() const { return world_; }  // ranks that saved it; any number may load it
  const std::string& numerics() const { return numerics_; }
  const std::string& engine() const { return engine_; }
  const std::string& state() const { return state_; }
  const std::string& run() const { return run_; }

  std::set<std::string> kinds() const;
  // Names and shapes of the parameters whose `kind` is there.
  std::map<std::string, Shape> parameters(const std::string& kind = "master") const;
  // Elements [begin, end) of a parameter into `out`, dense, one-dimensional, of the saved dtype.
  void read(const std::string& parameter,
            const std::string& kind,
            int64_t begin,
            int64_t end,
            const Tensor& out) const;
  // A parameter's value, all of it, into `out`, dense f32: its master, or itself where it is
  // frozen.
  void read_value(const std::string& parameter, const Tensor& out) const;
  // Error bad_input unless the checkpoint has all of them in these shapes.
  void check_fits(std::span<const StateEntry> entries) const;
  // Their values, read into host memory; error bad_input if they don't all fit, or a file has
  // changed since.
  std::vector<Tensor> read_aside(std::span<const StateEntry> entries) const;
  // Fills every entry's values, or on an error none.
  void read(std::span<const StateEntry> entries) const;

 private:
  void open(const CheckpointRanks& ranks);

  std::string path_, tag_, numerics_, engine_, state_, run_;
  uint64_t step_ = 0;
  int world_ = 0;
  std::unique_ptr<const ShardIndex> shards_;
};

}  // namespace sg::dist

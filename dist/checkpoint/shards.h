// Internal to dist/checkpoint: the shards of a checkpoint, written and indexed.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/io/safetensors.h"
#include "dist/checkpoint/manifest.h"
#include "dist/engine.h"

namespace sg::dist {

// Which save a shard belongs to; kept in its metadata, so that a strange one is told from a damaged
// one.
struct ShardLabel {
  std::string tag;
  uint64_t step = 0;
  int rank = 0, world = 1;
};

// Writes the entries of one rank into a new file, fsynced; `values` as Checkpoint's. Error io, and
// no file, once `given_up` is true.
ShardFile write_shard(const std::string& path,
                      const ShardLabel& label,
                      std::span<const StateEntry> entries,
                      const std::atomic<bool>& given_up,
                      const std::function<Tensor(const StateEntry&)>& values = {});

// The open shards of a checkpoint and which range of which parameter lies where. Reads headers
// only. Errors: bad_input unless every shard has its label and the ranges of every array cover its
// parameter once, from end to end.
class ShardIndex {
 public:
  ShardIndex(const std::string& checkpoint, const std::string& tag, uint64_t step, int world);

  std::set<std::string> kinds() const;
  std::map<std::string, Shape> parameters(const std::string& kind) const;
  bool holds(const std::string& parameter, const std::string& kind) const {
    return arrays_.contains({kind, parameter});
  }
  const Shape& shape(const std::string& parameter, const std::string& kind) const;
  DType dtype(const std::string& parameter, const std::string& kind) const;
  void read(const std::string& parameter,
            const std::string& kind,
            int64_t begin,
            int64_t end,
            const Tensor& out) const;

 private:
  struct StoredPiece {
    int64_t begin, end;
    const SafetensorsReader* shard;
    const SafetensorsReader::Entry* entry;
  };
  struct Array {
    Shape shape;
    DType dtype;
    std::vector<StoredPiece> pieces{};  // ascending
  };
  void add(const SafetensorsReader& shard, const ShardLabel& label);
  void add_piece(const SafetensorsReader& shard,
                 const std::string& tensor,
                 const std::string& description);
  void check_cover() const;
  const Array& find(const std::string& parameter, const std::string& kind) const;

  const std::string checkpoint_;
  std::vector<std::unique_ptr<SafetensorsReader>> shards_;
  std::map<std::pair<std::string, std::string>, Array> arrays_;  // by kind and parameter
};

}  // namespace sg::dist

// The flat space: every trainable parameter one after the other, in reverse registration order
// (persistent ones of a unit behind its others), cut into buckets of whole parameters (Li et al.,
// "PyTorch Distributed", VLDB 2020, §3.2), and who updates which part of them.
//
// A parameter's place is its offset; its chunks are runs of norm_chunk elements counted from its
// own start, the last one shorter. Every shard's boundary falls on a chunk's, so that chunk sums
// (and so norms) don't depend on the partition.
#pragma once
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "autograd/unit_map.h"
#include "core/copies.h"
#include "dist/comm/comm.h"
#include "dist/options.h"

namespace sg::dist {

// One collective's worth of a bucket: the whole bucket, or a slice of a parameter that is larger
// than a bucket.
struct Message {
  int64_t begin = 0, end = 0;  // in the flat space
  Shards shards;  // by who updates it: of every rank, or one of all where every rank updates all
  int64_t size() const { return end - begin; }
};

struct Bucket {
  int64_t begin = 0, end = 0;  // in the flat space
  int first = 0, last = 0;     // its parameters, by position: [first, last)
  std::vector<Message> messages;
  bool persistent = false;  // its parameters are smaller than the options' persistent_elements
  int64_t size() const { return end - begin; }
};

struct Placed {
  Variable parameter;
  int64_t offset = 0;    // in the flat space
  int64_t size = 0;      // elements
  int registration = 0;  // position in registration order
  int unit = 0;          // that it belongs to, where buckets keep to units
  int bucket = 0;
  int64_t end() const { return offset + size; }
};

// Elements [begin, end) of one parameter.
struct ParameterRange {
  int position = 0;  // the parameter's
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
};

// What this rank updates of a message.
struct Shard {
  int bucket = 0;
  int64_t begin = 0, end = 0;  // in the flat space; not empty
  int64_t size() const { return end - begin; }
};

enum class Updater : uint8_t { every_rank, rank_0, owners };

class FlatSpace {
 public:
  // `parameters` in registration order, trainable ones only; unit_of, unless empty, is each one's
  // unit, and then no bucket holds parameters of two units, nor persistent ones beside others.
  // Buckets close at the options' sizes. Owners: each message is split over `world` ranks as the
  // options' partition says: `bucket` gives every rank a part of every message, so that totals come
  // within a chunk of an equal share; `contiguous` gives each rank one run of the whole space
  // (whole units where unit_of is given).
  FlatSpace(const std::vector<Variable>& parameters,
            const Options& options,
            int world,
            const std::vector<int>& unit_of = {},
            Updater updater = Updater::owners);

  int64_t size() const { return size_; }  // elements
  DType dtype() const { return dtype_; }
  const std::vector<Placed>& parameters() const { return parameters_; }  // by position
  const std::vector<Bucket>& buckets() const { return buckets_; }
  const Placed& parameter(int position) const { return parameters_[position]; }
  const Bucket& bucket(int b) const { return buckets_[b]; }
  int position_of(const Variable& parameter) const;  // −1: not in this space

  std::vector<Shard> shards_of(int rank) const;  // what it updates, in the space's order
  bool every_rank_updates_all() const { return bucket(0).messages[0].shards.ranks() == 1; }
  // What of the flat range [begin, end) is which parameter's.
  std::vector<ParameterRange> ranges(int64_t begin, int64_t end) const;
  // The same as a range of the flat space.
  int64_t begin_of(const ParameterRange& range) const {
    return parameter(range.position).offset + range.begin;
  }
  const Placed& at(int64_t offset) const;  // the parameter there

 private:
  void place(const std::vector<Variable>& parameters,
             const Options& options,
             const std::vector<int>& unit_of);
  void cut_buckets(const Options& options, bool by_unit);
  void cut_messages(Bucket& bucket, int64_t limit);

  int64_t size_ = 0;
  DType dtype_ = DType::f32;
  std::vector<Placed> parameters_;
  std::vector<Bucket> buckets_;
  std::unordered_map<const void*, int> positions_;
};

// What the parts of an engine work on, which the engine keeps.
struct EngineLayout {
  const std::vector<Unit>& units;
  const UnitMap& map;
  const Options& options;  // resolved
  Comm& comm;
  const FlatSpace& space;
  const std::vector<Shard>& shards;  // this rank's
  // By bucket: when the device has the new parameters of this rank's shards.
  const std::vector<Event>& updated;

  DType communication() const { return options.communication.value_or(options.precision); }
  // Where the optimizer's state and the gradients of what this rank updates lie.
  Device state_device() const { return dist::state_device(options, comm.device()); }
};

}  // namespace sg::dist

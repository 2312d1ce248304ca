// The flat space: every trainable parameter one after the other, in reverse registration order
// (persistent ones of a unit behind its others), cut into buckets of whole parameters (Li et al.,
// "PyTorch Distributed", VLDB 2020, §3.2), and the shard of each bucket that each rank owns.
//
// A parameter's place is its offset; its chunks are runs of norm_chunk elements counted from its
// own start, the last one shorter. Every shard's boundary falls on a chunk's, so that chunk sums
// (and so norms) don't depend on the partition.
#pragma once
#include <cstdint>
#include <vector>

#include "autograd/variable.h"
#include "dist/comm/comm.h"
#include "dist/options.h"

namespace sg::dist {

// One collective's worth of a bucket: the whole bucket, or a slice of a parameter that is larger
// than a bucket.
struct Message {
  int64_t begin = 0, end = 0;  // in the flat space
  Shards shards;               // how [begin, end) is split over the ranks
  int64_t size() const { return end - begin; }
};

struct Bucket {
  int64_t begin = 0, end = 0;  // in the flat space
  int first = 0, last = 0;     // its parameters, positions in FlatSpace::parameters: [first, last)
  std::vector<Message> messages;
  bool persistent = false;  // its parameters are smaller than the options' persistent_elements
  int64_t size() const { return end - begin; }
};

struct Placed {
  Variable parameter;
  int64_t offset = 0;    // in the flat space
  int64_t size = 0;      // elements
  int registration = 0;  // position in registration order
};

// A run of one parameter: elements [begin, end) of it.
struct Slice {
  int position = 0;  // in FlatSpace::parameters
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
};

class FlatSpace {
 public:
  // `parameters` in registration order, trainable ones only; unit_of, unless empty, is each one's
  // unit, and then no bucket holds parameters of two units, nor persistent ones beside others.
  // Buckets close at the options' sizes; each message is split over `world` ranks as the options'
  // partition says: `bucket` gives every rank a part of every message, so that totals come within a
  // chunk of an equal share; `contiguous` gives each rank one run of the whole space (whole units
  // where unit_of is given).
  FlatSpace(const std::vector<Variable>& parameters,
            const Options& options,
            int world,
            const std::vector<int>& unit_of = {});

  int64_t size() const { return size_; }  // elements
  DType dtype() const { return dtype_; }
  const std::vector<Placed>& parameters() const { return parameters_; }
  const std::vector<Bucket>& buckets() const { return buckets_; }
  int bucket_of(int position) const { return bucket_of_[static_cast<size_t>(position)]; }
  int position_of(const Variable& parameter) const;  // −1: not in this space

  // What of the flat range [begin, end) is which parameter's.
  std::vector<Slice> slices(int64_t begin, int64_t end) const;
  // The parameter at a flat offset.
  const Placed& at(int64_t offset) const;

 private:
  void place(const std::vector<Variable>& parameters,
             const Options& options,
             const std::vector<int>& unit_of);
  void cut_buckets(const Options& options, const std::vector<int>& unit_of);
  void cut_messages(Bucket& bucket, int64_t limit);
  void split_evenly(int world);
  void split_contiguously(int world, const std::vector<int>& unit_of);

  int64_t size_ = 0;
  DType dtype_ = DType::f32;
  std::vector<Placed> parameters_;
  std::vector<Bucket> buckets_;
  std::vector<int> bucket_of_;
};

}  // namespace sg::dist

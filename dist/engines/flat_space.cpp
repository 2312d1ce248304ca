// How the space comes about: parameters are placed one after the other (place), an open bucket
// takes them up and closes when it is full or the next one doesn't belong to it (cut_buckets), a
// parameter larger than a bucket is cut into messages (cut_messages), and each message is split by
// who updates it (partition.h). Nothing changes afterwards; the rest answers questions.
#include "dist/engines/flat_space.h"

#include <algorithm>

#include "core/error.h"
#include "dist/engines/partition.h"
#include "kernels/table.h"

namespace sg::dist {
namespace {

// Sizes at which buckets close, in elements; the first one early, so that the wire starts early.
struct BucketLimits {
  int64_t first, others;

  explicit BucketLimits(const Options& options) {
    const int64_t element = size_of(options.precision);
    const int64_t first_bytes = std::min(options.first_bucket_bytes, options.bucket_bytes);
    first = std::max(first_bytes / element, norm_chunk);
    others = std::max(options.bucket_bytes / element, norm_chunk);
  }
};

bool is_persistent(int64_t elements, const Options& options, bool by_unit) {
  return by_unit && elements < options.persistent_elements;
}

}  // namespace

FlatSpace::FlatSpace(const std::vector<Variable>& parameters,
                     const Options& options,
                     int world,
                     const std::vector<int>& unit_of,
                     Updater updater)
    : dtype_(options.precision) {
  const bool by_unit = !unit_of.empty();
  place(parameters, options, unit_of);
  cut_buckets(options, by_unit);
  if (updater != Updater::owners)
    give_to_one(buckets_, updater == Updater::every_rank ? 1 : world);
  else if (options.partition == PartitionKind::contiguous)
    split_contiguously(*this, buckets_, world, by_unit);
  else
    split_evenly(*this, buckets_, world);
}

void FlatSpace::place(const std::vector<Variable>& parameters,
                      const Options& options,
                      const std::vector<int>& unit_of) {
  const bool by_unit = !unit_of.empty();
  for (int i = std::ssize(parameters); i-- > 0;) {
    const Variable& p = parameters[i];
    check(p.dtype() == DType::f32 || is_16bit(p.dtype()),
          "engine: {} is {}; models are made in f32 and the engine casts",
          p.name(),
          name_of(p.dtype()));
    parameters_.push_back({p, 0, p.numel(), i, by_unit ? unit_of[i] : 0});
  }
  const auto key = [&](const Placed& p) {
    return std::pair(-p.unit, is_persistent(p.size, options, by_unit));
  };
  std::stable_sort(parameters_.begin(), parameters_.end(), [&](const Placed& a, const Placed& b) {
    return key(a) < key(b);
  });
  for (Placed& placed : parameters_) {
    placed.offset = size_;
    size_ += placed.size;
    positions_.emplace(placed.parameter.id(), std::ssize(positions_));
  }
}

void FlatSpace::cut_buckets(const Options& options, bool by_unit) {
  const BucketLimits limits(options);
  Bucket open;
  const auto limit = [&] { return buckets_.empty() ? limits.first : limits.others; };
  const auto close = [&] {
    if (open.size() == 0)
      return;
    cut_messages(open, limits.others);
    buckets_.push_back(open);
    open = {open.end, open.end, open.last, open.last, {}, false};
  };
  int unit = 0;
  for (Placed& placed : parameters_) {
    const bool persistent = is_persistent(placed.size, options, by_unit);
    const bool another_kind = placed.unit != unit || persistent != open.persistent;
    if (another_kind || open.size() + placed.size > limit())
      close();
    unit = placed.unit;
    open.persistent = persistent;
    placed.bucket = std::ssize(buckets_);
    open.end += placed.size;
    ++open.last;
    if (open.size() >= limit())
      close();
  }
  close();
}

void FlatSpace::cut_messages(Bucket& bucket, int64_t limit) {
  const bool sliced = bucket.last - bucket.first == 1 && bucket.size() > limit;
  const int64_t step = sliced ? limit / norm_chunk * norm_chunk : bucket.size();
  for (int64_t begin = bucket.begin; begin < bucket.end; begin += step) {
    const int64_t end = std::min(begin + step, bucket.end);
    bucket.messages.push_back({begin, end, {}});
  }
}

int FlatSpace::position_of(const Variable& parameter) const {
  const auto found = positions_.find(parameter.id());
  return found == positions_.end() ? -1 : found->second;
}

std::vector<Shard> FlatSpace::shards_of(int rank) const {
  std::vector<Shard> result;
  for (int b = 0; b < std::ssize(buckets_); ++b) {
    for (const Message& message : bucket(b).messages) {
      const Shards& shards = message.shards;
      const int updater = shards.ranks() == 1 ? 0 : rank;
      const int64_t begin = message.begin + shards.offset(updater);
      const int64_t count = shards.count(updater);
      if (count > 0)
        result.push_back({b, begin, begin + count});
    }
  }
  return result;
}

std::vector<ParameterRange> FlatSpace::ranges(int64_t begin, int64_t end) const {
  std::vector<ParameterRange> result;
  const auto ends_before = [&](const Placed& p) { return p.end() <= begin; };
  auto p = std::partition_point(parameters_.begin(), parameters_.end(), ends_before);
  for (; p != parameters_.end() && p->offset < end; ++p) {
    const int position = p - parameters_.begin();
    const int64_t first = std::max(begin, p->offset);
    const int64_t last = std::min(end, p->end());
    if (first < last)
      result.push_back({position, first - p->offset, last - p->offset});
  }
  return result;
}

const Placed& FlatSpace::at(int64_t offset) const {
  return parameter(ranges(offset, offset + 1).at(0).position);
}

}  // namespace sg::dist

#include "dist/engines/flat_space.h"

#include <algorithm>

#include "core/error.h"
#include "kernels/table.h"

namespace sg::dist {
namespace {

int64_t chunks_of(int64_t elements) {
  return (elements + norm_chunk - 1) / norm_chunk;
}

// Boundaries of all chunks in a flat range, its begin and end included; the range starts and ends
// on boundaries.
std::vector<int64_t> boundaries(const FlatSpace& space, int64_t begin, int64_t end) {
  std::vector<int64_t> result{begin};
  for (const Slice& slice : space.slices(begin, end)) {
    const int64_t start = space.parameters()[static_cast<size_t>(slice.position)].offset;
    for (int64_t chunk = slice.begin / norm_chunk; chunk < chunks_of(slice.end); ++chunk) {
      result.push_back(start + std::min((chunk + 1) * norm_chunk, slice.end));
    }
  }
  return result;
}

bool is_persistent(int64_t elements, const Options& options, const std::vector<int>& unit_of) {
  return !unit_of.empty() && elements < options.persistent_elements;
}

}  // namespace

FlatSpace::FlatSpace(const std::vector<Variable>& parameters,
                     const Options& options,
                     int world,
                     const std::vector<int>& unit_of)
    : dtype_(options.precision) {
  place(parameters, options, unit_of);
  cut_buckets(options, unit_of);
  if (options.partition == PartitionKind::contiguous)
    split_contiguously(world, unit_of);
  else
    split_evenly(world);
}

void FlatSpace::place(const std::vector<Variable>& parameters,
                      const Options& options,
                      const std::vector<int>& unit_of) {
  std::vector<size_t> order;
  for (size_t i = parameters.size(); i-- > 0;)
    order.push_back(i);
  const auto key = [&](size_t i) {
    const int unit = unit_of.empty() ? 0 : unit_of[i];
    return std::pair(-unit, is_persistent(parameters[i].numel(), options, unit_of));
  };
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return key(a) < key(b); });
  for (size_t i : order) {
    const Variable& p = parameters[i];
    check(p.dtype() == DType::f32 || is_16bit(p.dtype()),
          "engine: {} is {}; models are made in f32 and the engine casts",
          p.name(),
          name_of(p.dtype()));
    parameters_.push_back({p, size_, p.numel(), static_cast<int>(i)});
    size_ += p.numel();
  }
}

void FlatSpace::cut_buckets(const Options& options, const std::vector<int>& unit_of) {
  const int64_t element = static_cast<int64_t>(size_of(dtype_));
  bucket_of_.assign(parameters_.size(), 0);
  Bucket open;
  const auto limit = [&] {
    const int64_t bytes = buckets_.empty()
                              ? std::min(options.first_bucket_bytes, options.bucket_bytes)
                              : options.bucket_bytes;
    return std::max(bytes / element, norm_chunk);
  };
  const auto close = [&] {
    if (open.size() == 0)
      return;
    cut_messages(open, std::max(options.bucket_bytes / element, norm_chunk));
    buckets_.push_back(open);
    open = {open.end, open.end, open.last, open.last, {}, false};
  };
  const auto unit = [&](size_t i) {
    return unit_of[static_cast<size_t>(parameters_[i].registration)];
  };
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const bool next_unit = !unit_of.empty() && i > 0 && unit(i) != unit(i - 1);
    const bool persistent = is_persistent(parameters_[i].size, options, unit_of);
    if (next_unit || persistent != open.persistent || open.size() + parameters_[i].size > limit())
      close();
    open.persistent = persistent;
    bucket_of_[i] = static_cast<int>(buckets_.size());
    open.end += parameters_[i].size;
    open.last = static_cast<int>(i) + 1;
    if (open.size() >= limit())
      close();
  }
  close();
}

void FlatSpace::cut_messages(Bucket& bucket, int64_t limit) {
  const bool sliced = bucket.last - bucket.first == 1 && bucket.size() > limit;
  const int64_t step = sliced ? limit / norm_chunk * norm_chunk : bucket.size();
  for (int64_t begin = bucket.begin; begin < bucket.end; begin += step) {
    bucket.messages.push_back({begin, std::min(begin + step, bucket.end), {}});
  }
}

// Each rank's part of every message brings its total as near to an equal share as chunks allow.
void FlatSpace::split_evenly(int world) {
  std::vector<int64_t> owned(static_cast<size_t>(world));
  int64_t total = 0;
  for (Bucket& bucket : buckets_) {
    for (Message& message : bucket.messages) {
      total += message.size();
      const std::vector<int64_t> chunk = boundaries(*this, message.begin, message.end);
      std::vector<int64_t> counts;
      int64_t begin = message.begin;
      auto cut = chunk.begin();  // walks: neighbours' cuts lie near each other
      for (int64_t& mine : owned) {
        const int64_t share = total / world - mine;
        const int64_t wanted = std::clamp(begin + share, begin, message.end);
        while (cut != chunk.begin() && *(cut - 1) >= wanted)
          --cut;
        while (*cut < wanted)
          ++cut;
        if (cut != chunk.begin() && *cut - wanted > wanted - *(cut - 1) && *(cut - 1) >= begin)
          --cut;  // the nearer boundary
        const bool last = counts.size() + 1 == owned.size();
        const int64_t end = last ? message.end : *cut;
        counts.push_back(end - begin);
        mine += end - begin;
        begin = end;
      }
      message.shards = Shards(std::move(counts));
    }
  }
}

// Each rank owns one run of the whole space, cut at the boundary nearest to an equal share: a
// chunk's, or a unit's where buckets keep to units.
void FlatSpace::split_contiguously(int world, const std::vector<int>& unit_of) {
  std::vector<int64_t> all = boundaries(*this, 0, size_);
  if (!unit_of.empty()) {
    all = {0};
    for (size_t i = 1; i <= parameters_.size(); ++i) {
      const auto unit = [&](size_t p) {
        return unit_of[static_cast<size_t>(parameters_[p].registration)];
      };
      if (i == parameters_.size() || unit(i) != unit(i - 1))
        all.push_back(parameters_[i - 1].offset + parameters_[i - 1].size);
    }
  }
  std::vector<int64_t> cuts;  // where each rank's run ends
  for (int r = 1; r <= world; ++r) {
    const int64_t wanted = size_ / world * r + size_ % world * r / world;
    auto cut = std::lower_bound(all.begin(), all.end(), wanted);
    if (cut != all.begin() && *cut - wanted > wanted - *(cut - 1))
      --cut;
    cuts.push_back(r == world ? size_ : *cut);
  }
  for (Bucket& bucket : buckets_) {
    for (Message& message : bucket.messages) {
      std::vector<int64_t> counts;
      int64_t begin = message.begin;
      for (int64_t cut : cuts) {
        const int64_t end = std::clamp(cut, begin, message.end);
        counts.push_back(end - begin);
        begin = end;
      }
      message.shards = Shards(std::move(counts));
    }
  }
}

int FlatSpace::position_of(const Variable& parameter) const {
  const auto found = std::find_if(parameters_.begin(), parameters_.end(), [&](const Placed& p) {
    return p.parameter == parameter;
  });
  return found == parameters_.end() ? -1 : static_cast<int>(found - parameters_.begin());
}

std::vector<Slice> FlatSpace::slices(int64_t begin, int64_t end) const {
  std::vector<Slice> result;
  auto p = std::upper_bound(
      parameters_.begin(), parameters_.end(), begin, [](int64_t offset, const Placed& q) {
        return offset < q.offset + q.size;
      });
  for (; p != parameters_.end() && p->offset < end; ++p) {
    const int64_t first = std::max(begin, p->offset), last = std::min(end, p->offset + p->size);
    if (first < last)
      result.push_back(
          {static_cast<int>(p - parameters_.begin()), first - p->offset, last - p->offset});
  }
  return result;
}

const Placed& FlatSpace::at(int64_t offset) const {
  return parameters_[static_cast<size_t>(slices(offset, offset + 1).at(0).position)];
}

}  // namespace sg::dist

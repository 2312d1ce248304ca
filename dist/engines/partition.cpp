#include "dist/engines/partition.h"

#include <algorithm>

#include "optim/clip.h"

namespace sg::dist {
namespace {

// Boundaries of all chunks in a flat range, its begin and end included; the range starts and ends
// on boundaries.
std::vector<int64_t> chunk_boundaries(const FlatSpace& space, int64_t begin, int64_t end) {
  std::vector<int64_t> result{begin};
  for (const ParameterRange& range : space.ranges(begin, end)) {
    const int64_t start = space.parameter(range.position).offset;
    const int64_t chunks = optim::chunks_of(range.end);
    for (int64_t chunk = range.begin / norm_chunk; chunk < chunks; ++chunk) {
      const int64_t chunk_end = std::min((chunk + 1) * norm_chunk, range.end);
      result.push_back(start + chunk_end);
    }
  }
  return result;
}

std::vector<int64_t> unit_boundaries(const FlatSpace& space) {
  std::vector<int64_t> result = {0};
  int unit = space.parameter(0).unit;
  for (const Placed& placed : space.parameters()) {
    if (placed.unit != unit)
      result.push_back(placed.offset);
    unit = placed.unit;
  }
  result.push_back(space.size());
  return result;
}

}  // namespace

int64_t size_of(const std::vector<Shard>& shards) {
  int64_t size = 0;
  for (const Shard& shard : shards)
    size += shard.size();
  return size;
}

size_t first_behind(const std::vector<Shard>& shards, int64_t offset) {
  const auto ends_before = [&](const Shard& shard) { return shard.end <= offset; };
  const auto found = std::partition_point(shards.begin(), shards.end(), ends_before);
  return found - shards.begin();
}

void give_to_one(std::vector<Bucket>& buckets, int ranks) {
  for (Bucket& bucket : buckets) {
    for (Message& message : bucket.messages)
      message.shards = Shards::whole(message.size(), ranks, 0);
  }
}

void split_evenly(const FlatSpace& space, std::vector<Bucket>& buckets, int world) {
  std::vector<int64_t> owned(world);
  int64_t total = 0;
  for (Bucket& bucket : buckets) {
    for (Message& message : bucket.messages) {
      total += message.size();
      const std::vector<int64_t> chunk = chunk_boundaries(space, message.begin, message.end);
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

void split_contiguously(const FlatSpace& space,
                        std::vector<Bucket>& buckets,
                        int world,
                        bool by_unit) {
  const int64_t size = space.size();
  const std::vector<int64_t> all =
      by_unit ? unit_boundaries(space) : chunk_boundaries(space, 0, size);
  std::vector<int64_t> cuts;  // where each rank's run ends
  for (int r = 1; r <= world; ++r) {
    const int64_t wanted = size / world * r + size % world * r / world;
    auto cut = std::lower_bound(all.begin(), all.end(), wanted);
    if (cut != all.begin() && *cut - wanted > wanted - *(cut - 1))
      --cut;
    cuts.push_back(r == world ? size : *cut);
  }
  for (Bucket& bucket : buckets) {
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

}  // namespace sg::dist

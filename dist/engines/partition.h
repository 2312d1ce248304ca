// How messages are split over the ranks that update them, and what to ask of a rank's shards.
#pragma once
#include <vector>

#include "dist/engines/flat_space.h"

namespace sg::dist {

// Rank 0 of so many updates everything; of one: every rank does.
void give_to_one(std::vector<Bucket>& buckets, int ranks);
// Each rank's part of every message brings its total as near to an equal share as chunks allow.
void split_evenly(const FlatSpace& space, std::vector<Bucket>& buckets, int world);
// Each rank owns one run of the whole space, cut at the boundary nearest to an equal share: a
// chunk's, or a unit's where buckets keep to units.
void split_contiguously(const FlatSpace& space,
                        std::vector<Bucket>& buckets,
                        int world,
                        bool by_unit);

// ---- the shards of a rank

int64_t size_of(const std::vector<Shard>& shards);  // elements, together
// The first of a space's shards that ends behind a flat offset; their number where none does.
size_t first_behind(const std::vector<Shard>& shards, int64_t offset);

}  // namespace sg::dist

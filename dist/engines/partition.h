// How messages are split over the ranks that update them.
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

}  // namespace sg::dist

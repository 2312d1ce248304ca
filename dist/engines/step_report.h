// What the ranks tell each other at the end of a step, in one message: the losses and weights of
// their micro-batches, flags, the first value that wasn't finite, and the roots of the norm's sum
// that they hold.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "autograd/targets.h"
#include "dist/comm/comm.h"
#include "dist/engine.h"

namespace sg::dist {

struct RankReport {
  uint32_t flags = 0;
  std::optional<NonFinite> nonfinite;  // offset in the flat space
  std::vector<float> losses;           // by micro-step
  std::vector<double> weights;         // likewise: targets over positions (numerics, rule 2)
  int64_t positions = 0;               // that weights are over; 0 where none was given
  std::vector<double> roots;           // GradientNorm::roots
};

// This rank's step is dropped: all but the flags, which stay raised.
void forget_step(RankReport& report);

// The weight of a micro-batch with these targets, which the report's positions are noted for.
// Usage error where their numbers can't be, or are over others than the micro-batches before.
double weigh(const std::optional<Targets>& targets, RankReport& report);
// What the losses counted must be what forward was told: a weight that is missing, or another's,
// would be a wrong step.
void check_targets(const std::optional<Targets>& given, const TargetsMet& met);

std::string encode(const RankReport& report);
RankReport decode(std::string_view bytes);

// The mean of all losses by their weights: number j·N + r is micro-step j of rank r; they add up as
// a tree in f64 in that order and the mean is rounded once (numerics, rule 11).
float mean_loss(std::span<const RankReport> reports);

// The number of micro-batches over the sum of their weights, added up likewise: what the norm and
// the update are multiplied by; exactly 1 where all weights are. Errors: numeric where the step has
// no target at all, usage where weights are over different numbers of positions.
double weight_factor(std::span<const RankReport> reports, int64_t step);

}  // namespace sg::dist

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

#include "dist/comm/comm.h"

namespace sg::dist {

struct StepReport {
  uint32_t flags = 0;
  std::optional<NonFinite> nonfinite;  // offset in the flat space
  std::vector<float> losses;           // by micro-step
  std::vector<double> weights;         // likewise: targets over positions (numerics, rule 2)
  int64_t positions = 0;               // that weights are over; 0 where none was given
  std::vector<double> roots;           // GradientNorm::roots
};

std::string encode(const StepReport& report);
StepReport decode(std::string_view bytes);

// The mean of all losses by their weights: number j·N + r is micro-step j of rank r; they add up as
// a tree in f64 in that order and the mean is rounded once (numerics, rule 11).
float mean_loss(std::span<const StepReport> reports);

// The number of micro-batches over the sum of their weights, added up likewise: what the norm and
// the update are multiplied by; exactly 1 where all weights are. Errors: numeric where the step has
// no target at all, usage where weights are over different numbers of positions.
double weight_factor(std::span<const StepReport> reports, int64_t step);

}  // namespace sg::dist

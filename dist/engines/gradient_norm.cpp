#include "dist/engines/gradient_norm.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"

namespace sg::dist {

using optim::chunks_of;
using optim::Subtree;

GradientNorm::GradientNorm(const FlatSpace& space, int world) : space_(space) {
  const int ranks = space.every_rank_updates_all() ? 1 : world;
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<ParameterRange>& ranges = ranges_.emplace_back();
    shards_.push_back(space.shards_of(rank));
    for (const Shard& shard : shards_.back()) {
      const std::vector<ParameterRange> of_shard = space.ranges(shard.begin, shard.end);
      ranges.insert(ranges.end(), of_shard.begin(), of_shard.end());
    }
  }
}

std::vector<double> GradientNorm::roots(int rank, std::span<const Tensor> gradients) const {
  const std::vector<Shard>& shards = shards_[rank];
  invariant(shards.size() == gradients.size(),
            "norm: {} gradients for {} shards",
            gradients.size(),
            shards.size());
  std::vector<double> result;
  for (size_t s = 0; s < shards.size(); ++s) {
    for (const ParameterRange& range : space_.ranges(shards[s].begin, shards[s].end)) {
      const int64_t begin = space_.begin_of(range) - shards[s].begin;
      const Tensor gradient = gradients[s].slice(0, begin, begin + range.size());
      const int64_t first = range.begin / norm_chunk;
      const int64_t total = chunks_of(space_.parameter(range.position).size);
      for (const Subtree& node : optim::subtrees(optim::chunk_sums(gradient), first, total))
        result.push_back(node.sum);
    }
  }
  return result;
}

// The subtrees that whoever has this range sends the roots of.
std::vector<Subtree> GradientNorm::layout_of(const ParameterRange& range) const {
  const int64_t first = range.begin / norm_chunk;
  const int64_t total = chunks_of(space_.parameter(range.position).size);
  const std::vector<double> unknown(chunks_of(range.end) - first);
  return optim::subtrees(unknown, first, total);
}

std::vector<double> GradientNorm::parameter_sums(std::span<const std::vector<double>> roots) const {
  std::vector<std::vector<Subtree>> parts(space_.parameters().size());
  for (size_t rank = 0; rank < roots.size(); ++rank) {
    size_t next = 0;
    for (const ParameterRange& range : ranges_[rank]) {
      for (Subtree node : layout_of(range)) {
        node.sum = roots[rank].at(next++);
        parts[range.position].push_back(node);
      }
    }
    invariant(next == roots[rank].size(),
              "norm: {} roots of rank {}, {} expected",
              roots[rank].size(),
              rank,
              next);
  }
  const auto comes_before = [](const Subtree& a, const Subtree& b) { return a.begin < b.begin; };
  std::vector<double> sums(parts.size());
  for (size_t position = 0; position < parts.size(); ++position) {
    std::vector<Subtree>& nodes = parts[position];
    std::sort(nodes.begin(), nodes.end(), comes_before);
    const Placed& placed = space_.parameter(position);
    sums[placed.registration] = optim::join(nodes, chunks_of(placed.size));
  }
  return sums;
}

std::string GradientNorm::first_nonfinite(std::span<const double> parameter_sums) const {
  const auto is_bad = [](double sum) { return !std::isfinite(sum); };
  const auto bad = std::find_if(parameter_sums.begin(), parameter_sums.end(), is_bad);
  if (bad == parameter_sums.end())
    return {};
  const auto registration = bad - parameter_sums.begin();
  for (const Placed& placed : space_.parameters())
    if (placed.registration == registration)
      return placed.parameter.name();
  return {};
}

}  // namespace sg::dist

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
    for (const Shard& shard : shards_.back())
      for (const ParameterRange& range : space.ranges(shard.begin, shard.end))
        ranges.push_back(range);
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
      const std::vector<double> sums = optim::chunk_sums(gradient);
      for (const Subtree& node : subtrees_of(range, sums))
        result.push_back(node.sum);
    }
  }
  return result;
}

// The largest subtrees of a parameter's tree that lie in a range of it, from its chunks' sums.
std::vector<Subtree> GradientNorm::subtrees_of(const ParameterRange& range,
                                               std::span<const double> sums) const {
  const int64_t first = range.begin / norm_chunk;
  const int64_t total = chunks_of(space_.parameter(range.position).size);
  return optim::subtrees(sums, first, total);
}

std::vector<double> GradientNorm::parameter_sums(std::span<const std::vector<double>> roots) const {
  std::vector<std::vector<Subtree>> parts(space_.parameters().size());
  for (size_t rank = 0; rank < roots.size(); ++rank) {
    size_t next = 0;
    for (const ParameterRange& range : ranges_[rank]) {
      const int64_t chunks = chunks_of(range.end) - range.begin / norm_chunk;
      const std::vector<double> unknown(chunks);
      for (Subtree node : subtrees_of(range, unknown)) {  // as the sender had them
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
  const Placed* first = nullptr;
  for (const Placed& placed : space_.parameters()) {
    if (std::isfinite(parameter_sums[placed.registration]))
      continue;
    if (!first || placed.registration < first->registration)
      first = &placed;
  }
  return first ? first->parameter.name() : "";
}

}  // namespace sg::dist

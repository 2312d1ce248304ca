#include "dist/engines/gradient_norm.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"

namespace sg::dist {

using optim::chunks_of;

GradientNorm::GradientNorm(const FlatSpace& space, std::vector<std::vector<Slice>> held)
    : space_(space), held_(std::move(held)) {}

std::vector<double> GradientNorm::roots(int rank, std::span<const Tensor> gradients) const {
  const auto& slices = held_[static_cast<size_t>(rank)];
  invariant(slices.size() == gradients.size(),
            "norm: {} gradients for {} runs",
            gradients.size(),
            slices.size());
  std::vector<double> result;
  for (size_t i = 0; i < slices.size(); ++i) {
    const int64_t total =
        chunks_of(space_.parameters()[static_cast<size_t>(slices[i].position)].size);
    for (const auto& node :
         optim::subtrees(optim::chunk_sums(gradients[i]), slices[i].begin / norm_chunk, total)) {
      result.push_back(node.sum);
    }
  }
  return result;
}

std::vector<double> GradientNorm::parameter_sums(std::span<const std::vector<double>> roots) const {
  std::vector<std::vector<optim::Subtree>> parts(space_.parameters().size());
  for (size_t rank = 0; rank < roots.size(); ++rank) {
    size_t next = 0;
    for (const Slice& slice : held_[rank]) {
      const auto position = static_cast<size_t>(slice.position);
      const int64_t first = slice.begin / norm_chunk,
                    total = chunks_of(space_.parameters()[position].size);
      const std::vector<double> unknown(static_cast<size_t>(chunks_of(slice.end) - first));
      for (optim::Subtree node :
           optim::subtrees(unknown, first, total)) {  // the layout that the sender had
        node.sum = roots[rank].at(next++);
        parts[position].push_back(node);
      }
    }
    invariant(next == roots[rank].size(),
              "norm: {} roots of rank {}, {} expected",
              roots[rank].size(),
              rank,
              next);
  }
  std::vector<double> sums(parts.size());
  for (size_t position = 0; position < parts.size(); ++position) {
    auto& nodes = parts[position];
    std::sort(
        nodes.begin(), nodes.end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
    const Placed& placed = space_.parameters()[position];
    sums[static_cast<size_t>(placed.registration)] = optim::join(nodes, chunks_of(placed.size));
  }
  return sums;
}

std::string GradientNorm::first_nonfinite(std::span<const double> parameter_sums) const {
  const auto bad = std::find_if(
      parameter_sums.begin(), parameter_sums.end(), [](double x) { return !std::isfinite(x); });
  if (bad == parameter_sums.end())
    return {};
  for (const Placed& placed : space_.parameters())
    if (placed.registration == bad - parameter_sums.begin())
      return placed.parameter.name();
  return {};
}

}  // namespace sg::dist

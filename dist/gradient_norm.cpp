#include "dist/gradient_norm.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/ops.h"

namespace sg::dist {
namespace {

int64_t chunks_of(int64_t elements) { return (elements + norm_chunk - 1) / norm_chunk; }

}  // namespace

GradientNorm::GradientNorm(const FlatSpace& space, std::vector<std::vector<Slice>> held)
    : space_(space), held_(std::move(held)) {
  for (const auto& slices : held_) {
    auto& nodes = nodes_.emplace_back();
    for (const Slice& slice : slices) {
      const int64_t all = chunks_of(space_.parameters()[static_cast<size_t>(slice.position)].size);
      const int64_t last = chunks_of(slice.end);
      for (int64_t at = slice.begin / norm_chunk; at < last;) {
        int level = 0;  // the largest aligned subtree that starts here and ends within the slice
        const auto end_of = [&](int l) { return std::min(at + (int64_t{1} << l), all); };
        while (at % (int64_t{2} << level) == 0 && end_of(level + 1) <= last && end_of(level) < all) ++level;
        nodes.push_back({slice.position, level, at >> level});
        at = end_of(level);
      }
    }
  }
}

std::vector<double> GradientNorm::roots(int rank, std::span<const Tensor> gradients) const {
  const auto& slices = held_[static_cast<size_t>(rank)];
  const auto& nodes = nodes_[static_cast<size_t>(rank)];
  invariant(slices.size() == gradients.size(), "norm: {} gradients for {} runs", gradients.size(), slices.size());
  std::vector<double> result;
  result.reserve(nodes.size());
  CategoryScope scope(Category::workspace);
  for (size_t i = 0; i < slices.size(); ++i) {
    const Tensor partial = sum_squares(gradients[i]);
    if (partial.device().type == DeviceType::meta) return std::vector<double>(nodes.size(), 1.0);
    const double* sums = partial.data<double>();
    const int64_t first = slices[i].begin / norm_chunk, count = partial.numel();
    for (size_t n = result.size(); n < nodes.size() && nodes[n].position == slices[i].position; ++n) {
      const int64_t begin = (nodes[n].index << nodes[n].level) - first;
      if (begin < 0 || begin >= count) break;  // the next run of the same parameter
      const int64_t size = std::min(int64_t{1} << nodes[n].level, count - begin);
      result.push_back(tree_sum(std::span(sums + begin, static_cast<size_t>(size))));
    }
  }
  invariant(result.size() == nodes.size(), "norm: {} roots of {}", result.size(), nodes.size());
  return result;
}

// Joins neighbours level by level: two children make a parent, a last one without a neighbour is carried up.
double GradientNorm::parameter_sum(int position, std::vector<Node>& nodes) const {
  int64_t width = chunks_of(space_.parameters()[static_cast<size_t>(position)].size);  // nodes of the level
  for (int level = 0; nodes.size() > 1; ++level, width = (width + 1) / 2) {
    size_t kept = 0;
    for (size_t i = 0; i < nodes.size(); ++i) {
      Node node = nodes[i];
      if (node.level == level) {
        const bool has_neighbour =
            node.index % 2 == 0 && i + 1 < nodes.size() && nodes[i + 1].level == level && node.index + 1 < width;
        if (has_neighbour) node.value += nodes[++i].value;
        node.index /= 2;
        ++node.level;
      }
      nodes[kept++] = node;
    }
    nodes.resize(kept);
    invariant(width > 1 || kept <= 1, "norm: parameter {} isn't held whole", position);
  }
  return nodes.empty() ? 0 : nodes[0].value;
}

std::vector<double> GradientNorm::parameter_sums(std::span<const std::vector<double>> roots) const {
  std::vector<std::vector<Node>> by_parameter(space_.parameters().size());
  for (size_t rank = 0; rank < roots.size(); ++rank) {
    for (size_t i = 0; i < roots[rank].size(); ++i) {
      Node node = nodes_[rank][i];
      node.value = roots[rank][i];
      by_parameter[static_cast<size_t>(node.position)].push_back(node);
    }
  }
  std::vector<double> sums(by_parameter.size());
  for (size_t position = 0; position < by_parameter.size(); ++position) {
    auto& nodes = by_parameter[position];
    std::sort(nodes.begin(), nodes.end(),
              [](const Node& a, const Node& b) { return a.index << a.level < b.index << b.level; });
    sums[static_cast<size_t>(space_.parameters()[position].registration)] =
        parameter_sum(static_cast<int>(position), nodes);
  }
  return sums;
}

double GradientNorm::sum(std::span<const std::vector<double>> roots) const { return tree_sum(parameter_sums(roots)); }

std::string GradientNorm::first_nonfinite(std::span<const std::vector<double>> roots) const {
  const std::vector<double> sums = parameter_sums(roots);
  for (size_t i = 0; i < sums.size(); ++i) {  // the space holds parameters in reverse registration order
    if (!std::isfinite(sums[i])) return space_.parameters()[sums.size() - 1 - i].parameter.name();
  }
  return {};
}

}  // namespace sg::dist

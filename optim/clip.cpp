#include "optim/clip.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/ops.h"

namespace sg::optim {
namespace {

// A node of a tree over `total` chunks: chunks begin … begin + width − 1, as far as there are any.
struct TreeNode {
  int64_t begin, width;
  int64_t end(int64_t total) const { return std::min(begin + width, total); }
  TreeNode left() const { return {begin, width / 2}; }
  TreeNode right() const { return {begin + width / 2, width / 2}; }
};

TreeNode root_of(int64_t total) {
  return {0,
          static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(total, 1))))};
}

void cover(TreeNode node,
           std::span<const double> sums,
           int64_t first,
           int64_t total,
           std::vector<Subtree>& out) {
  const int64_t end = node.end(total), last = first + static_cast<int64_t>(sums.size());
  if (node.begin >= last || end <= first)
    return;
  if (node.begin >= first && end <= last) {
    const auto held = sums.subspan(static_cast<size_t>(node.begin - first),
                                   static_cast<size_t>(end - node.begin));
    out.push_back({node.begin, end, tree_sum(held)});
    return;
  }
  cover(node.left(), sums, first, total, out);
  cover(node.right(), sums, first, total, out);
}

double join(TreeNode node, std::span<const Subtree>& parts, int64_t total) {
  invariant(!parts.empty() && parts[0].begin == node.begin,
            "join: chunks from {} on are missing",
            node.begin);
  if (parts[0].end == node.end(total)) {
    const double sum = parts[0].sum;
    parts = parts.subspan(1);
    return sum;
  }
  invariant(node.width > 1 && parts[0].end < node.end(total),
            "join: chunks {} … {} aren't a subtree",
            parts[0].begin,
            parts[0].end);
  const double left = join(node.left(), parts, total);
  return node.right().begin < total ? left + join(node.right(), parts, total) : left;
}

}  // namespace

std::vector<Subtree> subtrees(std::span<const double> sums, int64_t first, int64_t total) {
  std::vector<Subtree> out;
  if (!sums.empty())
    cover(root_of(total), sums, first, total, out);
  return out;
}

double join(std::span<const Subtree> parts, int64_t total) {
  if (total == 0)
    return 0;
  const double sum = join(root_of(total), parts, total);
  invariant(parts.empty(), "join: {} parts are left over", parts.size());
  return sum;
}

std::vector<double> chunk_sums(const Tensor& gradient) {
  const Tensor sums = sum_squares(gradient);
  if (sums.device().type == DeviceType::meta)
    return std::vector<double>(static_cast<size_t>(sums.numel()), 0.0);
  return to(sums, host).to_vector<double>();
}

double global_norm(std::span<const double> parameter_sums, double scale, double more) {
  check(scale > 0 && std::isfinite(scale), "global_norm: the scale must be positive: {}", scale);
  return more * std::sqrt(tree_sum(parameter_sums)) / scale;
}

float clip_factor(double norm, double clip, double scale, double more) {
  check(clip >= 0 && std::isfinite(clip), "clip: the norm must not be negative (0: off): {}", clip);
  check(scale > 0 && std::isfinite(scale), "clip: the scale must be positive: {}", scale);
  const double clipped = clip == 0 ? 1.0 : std::min(1.0, clip / (norm + 1e-6));
  return static_cast<float>(more * clipped / scale);
}

}  // namespace sg::optim

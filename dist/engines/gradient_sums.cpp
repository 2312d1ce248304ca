#include "dist/engines/gradient_sums.h"

#include "core/ops.h"
#include "dist/engines/partition.h"

namespace sg::dist {

GradientSums::GradientSums(const EngineLayout& on, Gradients& gradients) : on_(on) {
  const int k = on.options.micro_steps;
  const bool tree = on.options.elastic_determinism;
  if (!ranks_first() && k > 1) {
    CategoryScope scope(Category::accumulation);
    local_ = empty({on.space.size()});
  }
  int levels = arrive_by_micro_step() ? 1 : 0;
  if (tree)
    levels = MicroStepSum::tree_levels(k);
  ShardArray arrays(levels * size_of(on.shards), DType::f32, Category::accumulation);
  for (const Shard& shard : on.shards) {
    std::vector<Tensor> sums;
    for (int level = 0; level < levels; ++level)
      sums.push_back(arrays.next(shard.size()));
    if (tree) {
      shards_.push_back(MicroStepSum::tree(std::move(sums), k));
    } else {
      const Tensor sum = sums.empty() ? Tensor() : sums[0];
      shards_.push_back(MicroStepSum::left_to_right(gradients.mean_of(shard), sum));
    }
  }
}

Tensor GradientSums::add(const Bucket& bucket, const Tensor& gradient, int micro_step) {
  if (!local_.defined())
    return gradient;
  const Tensor sum = local_.slice(0, bucket.begin, bucket.end);
  if (micro_step == 0)
    copy_(sum, gradient);
  else
    accumulate_(sum, gradient);
  return sum;
}

bool GradientSums::crosses_after(int micro_step) const {
  return !local_.defined() || micro_step + 1 == on_.options.micro_steps;
}

DType GradientSums::mean_dtype() const {
  return on_.options.elastic_determinism ? DType::f32 : on_.communication();
}

Tensor GradientSums::arrival(const Message& message, int micro_step) const {
  const size_t s = first_behind(on_.shards, message.begin);
  const bool has_shard = s < on_.shards.size() && on_.shards[s].begin < message.end;
  if (!has_shard)
    return empty({0}, mean_dtype());
  return shards_[s].arrival(micro_step);
}

void GradientSums::arrived(int bucket, int micro_step) {
  const Bucket& b = on_.space.bucket(bucket);
  const size_t first = first_behind(on_.shards, b.begin);
  const size_t last = first_behind(on_.shards, b.end);
  for (size_t s = first; s < last; ++s)
    shards_[s].arrived(micro_step);
}

std::vector<Tensor> GradientSums::totals() const {
  std::vector<Tensor> totals;
  for (const MicroStepSum& shard : shards_)
    totals.push_back(shard.total());
  return totals;
}

}  // namespace sg::dist

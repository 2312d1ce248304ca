#include "dist/engines/gradient_sums.h"

#include <utility>

#include "core/ops.h"
#include "dist/engines/partition.h"

namespace sg::dist {

GradientSums::GradientSums(const EngineLayout& on, Gradients& gradients, CopyStream* to_host)
    : on_(on),
      gradients_(gradients),
      to_host_(to_host),
      arriving_(on.shards.size()),
      left_(on.space.buckets().size()) {
  const int k = on.options.micro_steps;
  const bool tree = on.options.elastic_determinism;
  if (!ranks_first() && k > 1) {
    CategoryScope scope(Category::accumulation);
    local_ = empty({on.space.size()});
  }
  int levels = arrive_by_micro_step() ? 1 : 0;
  if (tree)
    levels = MicroStepSum::tree_levels(k);
  ShardArray arrays(
      levels * size_of(on.shards), DType::f32, Category::accumulation, on.state_device());
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

Tensor GradientSums::arrival(const Message& message, int micro_step) {
  const size_t s = first_behind(on_.shards, message.begin);
  const bool has_shard = s < on_.shards.size() && on_.shards[s].begin < message.end;
  if (!has_shard)
    return empty({0}, mean_dtype());
  if (!to_host_)
    return shards_[s].arrival(micro_step);
  return arriving_[s] = on_device(on_.shards[s]);
}

// On its way to the host: where this rank's own contribution was, unless it arrives in another
// dtype.
Tensor GradientSums::on_device(const Shard& shard) {
  if (mean_dtype() == on_.options.precision) {
    const int64_t begin = shard.begin - on_.space.bucket(shard.bucket).begin;
    return gradients_.open(shard.bucket).slice(0, begin, begin + shard.size());
  }
  CategoryScope scope(Category::buckets);
  return empty({shard.size()}, mean_dtype());
}

void GradientSums::arrived(int bucket, int micro_step) {
  const Bucket& b = on_.space.bucket(bucket);
  const size_t first = first_behind(on_.shards, b.begin);
  const size_t last = first_behind(on_.shards, b.end);
  for (size_t s = first; s < last; ++s) {
    if (to_host_)
      left_[bucket] = send_to_host(s, micro_step);
    else
      shards_[s].arrived(micro_step);
  }
}

void GradientSums::wait_until_left(int bucket) const {
  if (to_host_)
    to_host_->wait(left_[bucket]);
}

Event GradientSums::send_to_host(size_t s, int micro_step) {
  const Tensor arrived = std::exchange(arriving_[s], {});
  const Tensor place = shards_[s].arrival(micro_step);
  const Event left = to_host_->copy("gradients to host", place, arrived);
  MicroStepSum& sum = shards_[s];
  if (on_.options.micro_steps > 1)
    to_host_->then("add on host", [&sum, micro_step] { sum.arrived(micro_step); });
  return left;
}

void GradientSums::drop() {
  arriving_.assign(arriving_.size(), {});
  if (to_host_)
    to_host_->record().wait();
}

std::vector<Tensor> GradientSums::totals() const {
  if (to_host_)
    to_host_->wait(to_host_->record());
  std::vector<Tensor> totals;
  for (const MicroStepSum& shard : shards_)
    totals.push_back(shard.total());
  return totals;
}

}  // namespace sg::dist

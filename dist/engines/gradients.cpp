#include "dist/engines/gradients.h"

#include "dist/engines/partition.h"

namespace sg::dist {
namespace {

ShardArray array_of_means(const EngineLayout& on) {
  return {size_of(on.shards), on.communication(), Category::gradients, on.state_device()};
}

}  // namespace

WholeGradients::WholeGradients(const EngineLayout& on)
    : on_(on),
      means_apart_(on.communication() != on.options.precision ||
                   on.state_device() != on.comm.device()) {
  CategoryScope scope(Category::gradients);
  flat_ = empty({on.space.size()}, on.options.precision);
  if (means_apart() && !on.options.elastic_determinism)
    means_ = array_of_means(on);
}

Tensor WholeGradients::open(int bucket) {
  const Bucket& b = on_.space.bucket(bucket);
  return range(b.begin, b.end);
}

Tensor WholeGradients::mean_of(const Shard& shard) {
  return means_apart() ? means_.next(shard.size()) : range(shard.begin, shard.end);
}

OneBucketAtATime::OneBucketAtATime(const EngineLayout& on, std::function<void()> make_room)
    : on_(on), make_room_(std::move(make_room)), open_(on.space.buckets().size()) {
  if (!on.options.elastic_determinism)
    means_ = array_of_means(on);
}

Tensor OneBucketAtATime::open(int bucket) {
  Tensor& buffer = open_[bucket];
  if (buffer.defined())
    return buffer;
  make_room_();
  CategoryScope scope(Category::buckets);
  return buffer = empty({on_.space.bucket(bucket).size()}, on_.options.precision);
}

void OneBucketAtATime::release(int bucket) {
  forget_gradients(on_.space, bucket);
  open_[bucket] = {};
}

void forget_gradients(const FlatSpace& space, int bucket) {
  const Bucket& b = space.bucket(bucket);
  for (int i = b.first; i < b.last; ++i) {
    Variable parameter = space.parameter(i).parameter;
    parameter.zero_grad();
  }
}

}  // namespace sg::dist

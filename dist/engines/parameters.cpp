#include "dist/engines/parameters.h"

#include <utility>

#include "core/ops.h"

namespace sg::dist {

void wait_for(std::vector<Work>& works) {
  for (Work& work : works)
    work.wait();
  works.clear();
}

WholeParameters::WholeParameters(const EngineLayout& on)
    : on_(on), arriving_(on.space.buckets().size()) {
  CategoryScope scope(Category::parameters);
  flat_ = empty({on.space.size()}, on.options.precision);
}

Tensor WholeParameters::place(const Placed& parameter) {
  const Tensor place = flat_.slice(0, parameter.offset, parameter.end());
  return place.reshape(parameter.parameter.shape());
}

Tensor WholeParameters::updated(const Shard& shard) {
  return flat_.slice(0, shard.begin, shard.end);
}

Call WholeParameters::call_of(int bucket, int message) const {
  const int64_t begin = on_.space.bucket(bucket).messages[message].begin;
  return {fmt::format("{}.parameters.{}.{} from {}",
                      name_of(on_.options.engine),
                      bucket,
                      message,
                      on_.space.at(begin).parameter.name()),
          Phase::step};
}

// In the order in which forward needs them: the last bucket holds the first parameters.
void WholeParameters::all_gather() {
  const int rank = on_.comm.rank();
  for (int b = std::ssize(arriving_); b-- > 0;) {
    on_.comm.stream().wait(on_.updated[b]);
    int m = 0;
    for (const Message& message : on_.space.bucket(b).messages) {
      const Tensor whole = flat_.slice(0, message.begin, message.end);
      const Tensor mine = message.shards.of(whole, rank);
      const Call call = call_of(b, m++);
      arriving_[b].push_back(on_.comm.all_gather(call, mine, message.shards, whole));
      if (!on_.options.overlap)
        arriving_[b].back().wait();
    }
  }
}

void WholeParameters::broadcast(int root) {
  for (int b = 0; b < std::ssize(arriving_); ++b) {
    const Bucket& bucket = on_.space.bucket(b);
    const Tensor whole = flat_.slice(0, bucket.begin, bucket.end);
    on_.comm.broadcast(call_of(b, 0), whole, root).wait();
  }
}

void WholeParameters::before_use(int position) {
  wait_for(arriving_[on_.space.parameter(position).bucket]);
}

void WholeParameters::wait() {
  for (std::vector<Work>& works : arriving_)
    wait_for(works);
}

// Variables keep the memory that they lie in.
bool WholeParameters::give_back(bool) {
  wait();
  flat_ = {};
  return true;
}

}  // namespace sg::dist

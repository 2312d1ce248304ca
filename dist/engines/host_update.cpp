#include "dist/engines/host_update.h"

#include <algorithm>

#include "core/device.h"
#include "core/ops.h"

namespace sg::dist {
namespace {

optim::Slice part_of(const optim::Slice& slice, int64_t begin, int64_t end) {
  optim::Slice part{
      slice.master.slice(0, begin, end), slice.gradient.slice(0, begin, end), {}, {}, slice.group};
  for (const Tensor& state : slice.state)
    part.state.push_back(state.slice(0, begin, end));
  return part;
}

}  // namespace

HostUpdate::HostUpdate(CopyStream& copies, DType parameter) : copies_(copies) {
  const Device host = host_of(copies.device());
  const int count = threads(copies.device());
  for (int i = 0; i < count; ++i)
    workers_.emplace_back(host, "host update");
  places_.resize(count + 2);
  if (!is_16bit(parameter))
    return;
  CategoryScope scope(Category::buckets);
  for (Place& place : places_)
    place.staged = empty({tile}, parameter, host);
}

Event HostUpdate::update(optim::Optimizer& optimizer,
                         const optim::Slice& slice,
                         const Tensor& parameters,
                         float factor) {
  Event up;
  for (int64_t begin = 0; begin < parameters.numel(); begin += tile) {
    const int64_t end = std::min(begin + tile, parameters.numel());
    optim::Slice part = part_of(slice, begin, end);
    Stream& worker = workers_[next_ % workers_.size()];
    Place& place = places_[next_++ % places_.size()];
    if (place.staged.defined())
      part.parameter = place.staged.slice(0, 0, end - begin);
    const Tensor from = place.staged.defined() ? part.parameter : part.master;
    worker.wait(place.free);
    worker.enqueue("host update", [&optimizer, part, factor] { optimizer.update(part, factor); });
    up = copies_.copy(
        "parameters from host", parameters.slice(0, begin, end), from, worker.record());
    place.free = up;
  }
  return up;
}

void HostUpdate::wait() {
  for (Stream& worker : workers_)
    worker.synchronize();
}

}  // namespace sg::dist

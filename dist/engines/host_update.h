// The optimizer's pass on the host (Ren et al., "ZeRO-Offload", USENIX ATC 2021, §4): shards are
// cut into tiles, which threads of the host update; a tile's parameters go up to the device while
// the next ones are computed. The tiles change no bit (kernels/update.h).
#pragma once
#include <vector>

#include "core/copies.h"
#include "optim/optimizer.h"

namespace sg::dist {

class HostUpdate {
 public:
  // One thread of the host for each of the device's. `parameter`: what goes up; where it is 16-bit,
  // threads + 2 tiles of it wait on the host, booked as buckets: f32 masters go up themselves.
  HostUpdate(CopyStream& copies, DType parameter);

  static constexpr int64_t tile = int64_t{1} << 18;  // elements

  // Master, gradient and state of the slice (n) lie on the host, `parameters` (n) on the device.
  // Returns before it is done; the event passes when the device has the new parameters.
  // `optimizer` must not change before wait.
  Event update(optim::Optimizer& optimizer,
               const optim::Slice& slice,
               const Tensor& parameters,
               float factor);
  void wait();  // until the host has updated all tiles

 private:
  struct Place {    // of a tile on its way up
    Tensor staged;  // (tile); undefined where masters go up
    Event free;     // nobody needs what it holds
  };

  CopyStream& copies_;
  std::vector<Stream> workers_;
  std::vector<Place> places_;
  size_t next_ = 0;  // tiles so far
};

}  // namespace sg::dist

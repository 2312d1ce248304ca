// Kept inputs of recomputed regions in host memory: they leave the device on a stream for copies
// while the region runs, and come back ahead of the backward pass that needs them, the next one
// while one is computed again (Rajbhandari et al., "ZeRO", SC 2020, §6.1: P_a+cpu).
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "core/copies.h"
#include "core/stream.h"
#include "core/tensor.h"

namespace sg {

class HostActivations;

// One tensor that went to the host.
class Parked {
 public:
  Parked(std::shared_ptr<HostActivations> store, const Tensor& x);
  ~Parked();
  Parked(const Parked&) = delete;
  Parked& operator=(const Parked&) = delete;

  // The tensor on its device again, its bits as they were; waits until it has arrived. It may be
  // taken again.
  Tensor take();

 private:
  friend class HostActivations;
  void send_back();  // unless it is under way

  const std::shared_ptr<HostActivations> store_;
  const Device device_;
  Tensor here_;   // on the host
  Tensor there_;  // on the device, from send_back to take
  Event sent_, back_;
};

// Those of one thread's forward pass, in its order. Books: activations of `host`; bytes and waiting
// in core/copies.h.
class HostActivations : public std::enable_shared_from_this<HostActivations> {
 public:
  explicit HostActivations(Device device);
  // x dense, on the device. Whoever drops x drops its memory on the device.
  std::shared_ptr<Parked> park(const Tensor& x);

 private:
  friend class Parked;
  void forget(const Parked* parked);
  Parked* before(const Parked* parked) const;  // the one that was parked before it; null: none

  CopyStream copies_;
  std::vector<Parked*> parked_;  // those that exist, in the order of the forward pass
};

}  // namespace sg

// How the micro-steps of a step add up: on every rank before they cross (local first), or at the
// owner of a shard after each of them has crossed (ranks first, elastic determinism).
#pragma once
#include <vector>

#include "dist/engines/gradients.h"
#include "dist/engines/micro_step_sum.h"

namespace sg::dist {

class GradientSums {
 public:
  // `gradients`: where means arrive. Takes the memory of the sums: f32, booked as accumulation.
  // `to_host`: by which means go to the host, where they add up; null where they stay.
  GradientSums(const EngineLayout& on, Gradients& gradients, CopyStream* to_host);

  // Before it crosses: adds a bucket's gradient of a micro-step to those before it, and returns
  // their sum; the gradient itself where they add up at the owner.
  Tensor add(const Bucket& bucket, const Tensor& gradient, int micro_step);
  // Whether what add returns crosses after this micro-step, or waits for the others.
  bool crosses_after(int micro_step) const;
  // Whether a micro-step's sums must have arrived before the next one's are sent.
  bool arrive_by_micro_step() const { return ranks_first() && on_.options.micro_steps > 1; }

  // Where this rank's shard of a message arrives; empty where it has none.
  Tensor arrival(const Message& message, int micro_step);
  void arrived(int bucket, int micro_step);  // all of it
  std::vector<Tensor> totals() const;        // by shard, after the last micro-step
  void drop();                               // what has arrived of a step that failed
  // Until what arrived of a bucket has left the device: then its gradients may be written again.
  void wait_until_left(int bucket) const;

 private:
  bool ranks_first() const { return on_.options.accumulation == Accumulation::ranks_first; }
  DType mean_dtype() const;
  Tensor on_device(const Shard& shard);
  Event send_to_host(size_t shard, int micro_step);

  const EngineLayout on_;
  Gradients& gradients_;
  CopyStream* const to_host_;
  Tensor local_;                      // local first and several micro-steps: (φ) f32
  std::vector<MicroStepSum> shards_;  // each (n) of its shard
  // Where they go to the host:
  std::vector<Tensor> arriving_;  // by shard: (n) on the device, from arrival to arrived
  std::vector<Event> left_;       // by bucket
};

}  // namespace sg::dist

// Where the engines that keep whole parameters (ddp, zero1, zero2) have them: one flat array in the
// space's order.
#pragma once
#include "dist/engines/bucket_engine.h"

namespace sg::dist {

class FlatEngine : public BucketEngine {
 protected:
  using BucketEngine::BucketEngine;

  void allocate(const std::vector<Owned>& parts) override;
  void place(const Placed& parameter, const Tensor& value) override;
  Tensor parameters_of(const Owned& part) override {
    return parameters_.slice(0, part.begin, part.end);
  }

  // Each message's owners send their updated parameters to everybody; who reads a parameter waits
  // for its bucket, so that the gather overlaps what comes before.
  void gather_parameters();
  void await_parameters() override;
  void before_use(int position) override;
  bool give_back(bool alone) override;

  Tensor parameters_;  // (φ)

 private:
  std::vector<std::vector<Work>> arriving_;  // by bucket
};

}  // namespace sg::dist

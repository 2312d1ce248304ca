// Blocks: the units that a deep model repeats, one behind the other, which may keep less for
// backward than their ops do (autograd/recompute_policy.h). A family derives its block, registers
// each by add_block, and runs them by run_blocks:
//
//   struct MyBlock final : nn::Block {
//     nn::Residual compute(const nn::Residual& in, const Tensor&) override {
//       const auto [y, x] = norm.forward_sum(in.x, in.delta);
//       return {x, mlp.forward(y)};
//     }
//   };
//   std::vector<std::unique_ptr<nn::Block>> blocks_;
//   …  add_block("block0", *blocks_.back());
//   …  residual = nn::run_blocks(blocks_, residual);
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "nn/module.h"

namespace sg::nn {

// The residual stream and what the last layer adds to it: the sum is fused with the norm that reads
// it next. delta is undefined where there is nothing to add.
struct Residual {
  Variable x, delta;
  Variable sum() const;
};
// The same as units pass it on (Unit::forward); usage error for fewer than two.
std::vector<Variable> flow_of(const Residual& residual);
Residual residual_of(std::span<const Variable> flow);

class Block : public Module {
 public:
  // compute within the unit's hooks, by its recompute policy. `mask`: what else a family's blocks
  // read, the same in all of them; may be undefined.
  Residual forward(const Residual& in, const Tensor& mask = {});

 protected:
  // Depends on its arguments, parameters and micro-step alone: it may run again. Takes a sum in x
  // without delta as it takes the pair.
  virtual Residual compute(const Residual& in, const Tensor& mask) = 0;

 private:
  friend Residual run_blocks(std::span<const std::unique_ptr<Block>> blocks,
                             Residual in,
                             const Tensor& mask);
};

// All of them in their order; under the policy every:N in regions of N.
Residual run_blocks(std::span<const std::unique_ptr<Block>> blocks,
                    Residual in,
                    const Tensor& mask = {});

}  // namespace sg::nn

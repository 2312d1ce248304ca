#include "nn/block.h"

#include <utility>

#include "autograd/ops.h"
#include "autograd/recompute.h"

namespace sg::nn {
namespace {

// f(in), keeping the residual's sum alone.
template <class F>
Residual region(const Residual& in, const UnitRecompute& policy, F f) {
  const Variable sum = in.sum();
  const auto out = recompute(
      [f = std::move(f)](std::span<const Variable> inputs) {
        return flow_of(f(Residual{inputs[0], {}}));
      },
      {&sum, 1},
      policy.store);
  return residual_of(out);
}

}  // namespace

Variable Residual::sum() const {
  return delta.defined() ? add(x, delta) : x;
}

std::vector<Variable> flow_of(const Residual& residual) {
  return {residual.x, residual.delta};
}
Residual residual_of(std::span<const Variable> flow) {
  check(flow.size() >= 2,
        "block: it takes the residual stream and what is added to it, not {} tensors",
        flow.size());
  return {flow[0], flow[1]};
}

void Module::add_block(const std::string& name, Block& block) {
  add_child(name, block, true, [&block](std::span<const Variable> in) {
    return flow_of(block.forward(residual_of(in)));
  });
  children_.back().block = true;
}

Residual Block::forward(const Residual& in, const Tensor& mask) {
  const RecomputeKind kind = grad_enabled() ? recompute_policy().kind : RecomputeKind::none;
  if (kind == RecomputeKind::full) {
    return in_unit([&] {
      return region(
          in, recompute_policy(), [this, mask](const Residual& sum) { return compute(sum, mask); });
    });
  }
  return in_unit([&] {
    if (kind != RecomputeKind::selective)
      return compute(in, mask);
    const RemakeScope scope;
    return compute(in, mask);
  });
}

Residual run_blocks(std::span<const std::unique_ptr<Block>> blocks,
                    Residual in,
                    const Tensor& mask) {
  const auto run = [mask](auto part, Residual residual) {
    for (const auto& block : part)
      residual = block->forward(residual, mask);
    return residual;
  };
  for (size_t begin = 0, end = 0; begin < blocks.size(); begin = end) {
    const UnitRecompute& first = blocks[begin]->recompute_policy();
    const bool together = first.kind == RecomputeKind::every && grad_enabled();
    const auto same = [&](const UnitRecompute& other) {
      return together && other.kind == first.kind && other.region == first.region;
    };
    end = begin + 1;
    while (end < blocks.size() && same(blocks[end]->recompute_policy()))
      ++end;
    const auto part = blocks.subspan(begin, end - begin);
    if (together)
      in = region(in, first, [run, part](const Residual& sum) { return run(part, sum); });
    else
      in = run(part, in);
  }
  return in;
}

}  // namespace sg::nn

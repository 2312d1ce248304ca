#include "dist/engines/facts.h"

#include <algorithm>

#include "core/error.h"

namespace sg::dist {
namespace {

using enum EngineKind;
constexpr Accumulation local_first = Accumulation::local_first;
constexpr Accumulation ranks_first = Accumulation::ranks_first;

// automatic: whatever it takes keeps micro-steps' sums where the optimizer's state is, so that its
// order doesn't depend on the engine that it takes.
constexpr EngineFacts facts[] = {
    // kind, next, shards, order, one reader, gathers units, parameters run
    {none, zero1, ModelState::nothing, local_first, false, false, Beside::nothing},
    {dp, zero1, ModelState::nothing, local_first, true, false, Beside::nothing},
    {ddp, zero1, ModelState::nothing, local_first, false, false, Beside::nothing},
    {zero1, zero2, ModelState::optimizer, local_first, false, false, Beside::next_forward},
    {zero2, zero3, ModelState::gradients, ranks_first, false, false, Beside::next_forward},
    {zero3, zero3, ModelState::parameters, ranks_first, false, true, Beside::every_product},
    {automatic, automatic, ModelState::nothing, ranks_first, false, false, Beside::nothing},
};

constexpr EngineKind rungs[] = {ddp, zero1, zero2, zero3};

}  // namespace

const char* name_of(ModelState state) {
  switch (state) {
    case ModelState::nothing: return "nothing";
    case ModelState::optimizer: return "optimizer state";
    case ModelState::gradients: return "gradients";
    case ModelState::parameters: return "parameters";
  }
  throw Bug("engine facts: unknown state");
}

const EngineFacts& facts_of(EngineKind kind) {
  const auto is_of = [&](const EngineFacts& row) { return row.kind == kind; };
  return *std::find_if(std::begin(facts), std::end(facts), is_of);
}

std::span<const EngineKind> ladder() {
  return rungs;
}

}  // namespace sg::dist

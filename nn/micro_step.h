// Where random numbers of the forward pass come from: numerics rule 12.
#pragma once
#include <cstdint>
#include <string_view>
#include <unordered_map>

#include "kernels/random.h"

namespace sg::nn {

// What the running micro-step draws with, per thread. `calls` counts each path's draws, so that a
// module that is called twice drops different elements; recompute (autograd/recompute.h) puts the
// whole value back as it was.
struct MicroStep {
  uint64_t seed = 0;
  uint64_t step = 0;          // optimizer step
  uint64_t first_sample = 0;  // global number, within the step, of the batch's row 0
  std::unordered_map<uint64_t, uint64_t> calls;
};

// A forward pass in training mode runs inside one of these where the model drops anything.
class MicroStepScope {
 public:
  MicroStepScope(uint64_t seed, uint64_t step, uint64_t first_sample);
  explicit MicroStepScope(MicroStep state);  // one that goes on where `state` is
  ~MicroStepScope();
  MicroStepScope(const MicroStepScope&) = delete;
  MicroStepScope& operator=(const MicroStepScope&) = delete;

 private:
  MicroStep own_;
  MicroStep* previous_;
};

MicroStep* current_micro_step();  // null outside of scopes

// The key of the next draw of the module at `path`. Usage error outside of a scope.
RandomKey next_key(std::string_view path);

}  // namespace sg::nn

#include "nn/micro_step.h"

#include <memory>
#include <utility>

#include "autograd/recompute.h"
#include "core/error.h"
#include "nn/init.h"

namespace sg::nn {
namespace {

thread_local MicroStep* current = nullptr;

ThreadState::Copy copy_of_current() {
  if (!current)
    return [] { return ThreadState::Restored(); };
  return
      [state = *current] { return ThreadState::Restored(std::make_shared<MicroStepScope>(state)); };
}

// Once, before the first micro-step.
void add_to_recompute() {
  static const bool added = [] {
    ThreadState::add(copy_of_current);
    return true;
  }();
  (void)added;
}

}  // namespace

MicroStepScope::MicroStepScope(uint64_t seed, uint64_t step, uint64_t first_sample)
    : MicroStepScope(
          MicroStep{.seed = seed, .step = step, .first_sample = first_sample, .calls = {}}) {}
MicroStepScope::MicroStepScope(MicroStep state) : own_(std::move(state)), previous_(current) {
  add_to_recompute();
  current = &own_;
}
MicroStepScope::~MicroStepScope() {
  current = previous_;
}

MicroStep* current_micro_step() {
  return current;
}

RandomKey next_key(std::string_view path) {
  check(current != nullptr,
        "dropout: {} runs in training mode outside of a micro-step; open an "
        "nn::MicroStepScope(seed, step, first sample) "
        "around the forward pass, or call eval() on the model",
        path);
  const uint64_t hash = hash_path(path);
  return {.seed = current->seed,
          .op = hash + current->calls[hash]++,
          .step = current->step,
          .first_sample = current->first_sample};
}

}  // namespace sg::nn

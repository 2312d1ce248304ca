// Activation checkpointing: a region of the forward pass that keeps its input alone; backward
// computes the rest again.
#pragma once
#include <functional>
#include <memory>

#include "autograd/variable.h"

namespace sg {

// f(input), with f's gradients and bits. f runs twice and computes the same both times: what ops
// draw on beside their inputs is put back (ThreadState below). Variables that f captures must be
// leaves; they get their gradients as if they had been used directly. Regions may hold regions.
Variable recompute(const std::function<Variable(const Variable&)>& f, const Variable& input);

// True on this thread while backward computes a region again: an engine then holds back what it
// releases after forward.
bool recomputing();

// What ops of this thread draw on beside their inputs, such as the place that random numbers come
// from. A layer that keeps such a state adds it once; recompute takes a copy before a region runs
// and puts it in place while the region runs again.
class ThreadState {
 public:
  using Restored = std::shared_ptr<const void>;  // in place as long as it lives
  using Copy = std::function<Restored()>;  // puts the state back as it was when the copy was made
  static void add(std::function<Copy()>
                      make_copy);  // may be called on any thread, before the state's first use
  static Copy copy();              // of all that were added
};

}  // namespace sg

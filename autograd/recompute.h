// Activation checkpointing: a region of the forward pass that keeps its inputs alone; backward
// computes the rest again (Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016).
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "autograd/variable.h"

namespace sg {

class HostActivations;  // host_activations.h

using Region = std::function<std::vector<Variable>(std::span<const Variable> inputs)>;

// f(inputs), with f's gradients and bits. f runs twice and computes the same both times: what ops
// draw on beside their inputs is put back (ThreadState below), and so are device and category.
// Inputs and results may be undefined, without gradient, or given twice; a result may be an input.
// Variables that f captures must be leaves; they get their gradients as if they had been used
// directly. Regions may hold regions and calls of units, and stand in calls of units. Errors of the
// second run: usage, where its results differ in number, shape or dtype from the first one's.
// With a store, what the region keeps of its float inputs lies in host memory until then.
std::vector<Variable> recompute(const Region& f,
                                std::span<const Variable> inputs,
                                const std::shared_ptr<HostActivations>& store = {});
Variable recompute(const std::function<Variable(const Variable&)>& f, const Variable& input);

// True on this thread while backward computes a region again: an engine then holds back what it
// releases after forward.
bool recomputing();

// While it lives, norms, activations and products of elements recorded on this thread don't keep
// their results for the ops of the same unit's call that read them: backward makes them again from
// what those ops keep anyway. Same bits.
class RemakeScope {
 public:
  RemakeScope();
  ~RemakeScope();
  RemakeScope(const RemakeScope&) = delete;
  RemakeScope& operator=(const RemakeScope&) = delete;

 private:
  bool previous_;
};

// What this thread has spent on computing again since it began.
double recompute_seconds();

// What ops of this thread draw on beside their inputs, such as the place that random numbers come
// from. A layer that keeps such a state adds it once; recompute takes a copy before a region runs
// and puts it in place while the region runs again.
class ThreadState {
 public:
  using Restored = std::shared_ptr<const void>;  // in place as long as it lives
  using Copy = std::function<Restored()>;  // puts the state back as it was when the copy was made
  // May be called on any thread, before the state's first use.
  static void add(std::function<Copy()> make_copy);
  static Copy copy();  // of all that were added
};

}  // namespace sg

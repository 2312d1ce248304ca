// Activation checkpointing: a region of the forward pass that keeps its input alone; backward computes the rest again.
#pragma once
#include <functional>

#include "autograd/variable.h"

namespace sg {

// f(input), with f's gradients and bits. f runs twice and must compute the same both times: whatever else it draws on,
// such as the state that random numbers come from, is its own business to restore. Variables that f captures must be
// leaves; they get their gradients as if they had been used directly.
Variable recompute(const std::function<Variable(const Variable&)>& f, const Variable& input);

// True on this thread while backward computes a region again: an engine then holds back what it releases after forward.
bool recomputing();

}  // namespace sg

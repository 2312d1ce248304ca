// How parameters pass from an engine to the next one, or to none.
#pragma once
#include <span>

#include "autograd/hooks.h"

namespace sg::dist {

// Engines that keep any of the units' parameters give all of theirs back and end. Collective where
// they have peers.
void take_from_other_engines(std::span<const Unit> units);

// The parameter's value is gone with its engine: it lies on meta from now on, and reading it is an
// error that says what to do.
void leave_without_value(Variable& parameter);

}  // namespace sg::dist

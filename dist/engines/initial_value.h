// Initial values of parameters as an engine takes them over.
#pragma once
#include <span>

#include "autograd/hooks.h"
#include "dist/comm/comm.h"

namespace sg::dist {

// Rank 0's value of a parameter, dense, on this rank's device: the parameter's own tensor where it
// lies there densely; where it lies on meta, a new one of `category` that its unit drew.
// Collective, booked under setup. Usage error for a parameter on meta whose unit has no initial
// values.
Tensor initial_value(const Variable& parameter,
                     std::span<const Unit> units,
                     Comm& comm,
                     Category category);

}  // namespace sg::dist

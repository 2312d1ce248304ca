// Initial values of parameters as an engine takes them over.
#pragma once
#include "autograd/hooks.h"
#include "dist/comm/comm.h"

namespace sg::dist {

// Rank 0's value of a parameter, dense, on this rank's device: the parameter's own tensor where it
// lies there densely; where it lies on meta, a new one of `category` that its unit draws.
// Collective, booked under setup. Usage error for a parameter on meta whose unit has no initial
// values.
Tensor initial_value(const Variable& parameter, const Unit& unit, Comm& comm, Category category);

}  // namespace sg::dist

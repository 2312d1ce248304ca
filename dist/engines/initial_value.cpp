#include "dist/engines/initial_value.h"

#include "core/error.h"
#include "core/ops.h"

namespace sg::dist {
namespace {

Tensor draw(const Variable& parameter, const Unit& unit, const Comm& comm) {
  const bool simulated = comm.device().type == DeviceType::meta;  // has no values
  check(unit.initial != nullptr || simulated,
        "initialize: {} lies on meta, and its unit doesn't tell its initial value (Unit::initial)",
        parameter.name());
  const Tensor value = empty(parameter.shape(), DType::f32, comm.device());
  if (comm.rank() == 0 && unit.initial)
    unit.initial(parameter, value);  // the others are sent it
  return value;
}

}  // namespace

Tensor initial_value(const Variable& parameter, const Unit& unit, Comm& comm, Category category) {
  CategoryScope scope(category);
  const Tensor& own = parameter.tensor();
  const bool absent = own.device().type == DeviceType::meta && own.device() != comm.device();
  Tensor value = absent ? draw(parameter, unit, comm) : contiguous(to(own, comm.device()));
  if (is_16bit(value.dtype()))
    value = cast(value, DType::f32);  // as an engine of that precision has left it
  if (value.numel() > 0)
    comm.broadcast({"setup." + parameter.name(), Phase::setup}, value, 0).wait();
  return value;
}

}  // namespace sg::dist

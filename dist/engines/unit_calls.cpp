#include "dist/engines/unit_calls.h"

#include <algorithm>

namespace sg::dist {

void UnitCalls::forget() {
  units_.assign(units_.size(), {});
  read_outside_.assign(read_outside_.size(), false);
}

void UnitCalls::backward_ends(size_t unit) {
  --units_[unit].in_backward;
  units_[unit].open = std::max(units_[unit].open - 1, 0);
}

const std::vector<size_t>& UnitCalls::users_of(int position) const {
  const Variable& parameter = on_.space.parameter(position).parameter;
  return on_.map.find(parameter)->users;
}

bool UnitCalls::within(int position) const {
  const auto& call = current_unit_call();
  for (size_t unit : users_of(position)) {
    const bool in_forward = call && on_.units[unit].hooks == call->hooks;
    if (in_forward || units_[unit].in_backward > 0)
      return true;
  }
  return false;
}

bool UnitCalls::all_ended(int position) const {
  if (read_outside_[position])
    return false;
  for (size_t unit : users_of(position))
    if (units_[unit].open > 0)
      return false;
  return true;
}

}  // namespace sg::dist

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
  return on_.map.find(on_.space.parameter(position).parameter)->users;
}

bool UnitCalls::within(int position) const {
  const auto& call = current_unit_call();
  const std::vector<size_t>& users = users_of(position);
  return std::any_of(users.begin(), users.end(), [&](size_t unit) {
    const bool in_forward = call && on_.units[unit].hooks == call->hooks;
    return units_[unit].in_backward > 0 || in_forward;
  });
}

bool UnitCalls::all_ended(int position) const {
  const std::vector<size_t>& users = users_of(position);
  const auto has_ended = [&](size_t unit) { return units_[unit].open == 0; };
  return !read_outside_[position] && std::all_of(users.begin(), users.end(), has_ended);
}

}  // namespace sg::dist

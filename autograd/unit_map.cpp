#include "autograd/unit_map.h"

namespace sg {

UnitMap::UnitMap(std::span<const Unit> units) {
  for (size_t u = 0; u < units.size(); ++u) {
    for (const Variable& parameter : units[u].parameters) {
      const size_t next = entries_.size();
      const auto [known, is_new] = positions_.try_emplace(parameter.id(), next);
      if (is_new)
        entries_.push_back({parameter, u, {}, next});
      std::vector<size_t>& users = entries_[known->second].users;
      if (users.empty() || users.back() != u)
        users.push_back(u);
    }
  }
}

const UnitMap::Entry* UnitMap::find(const Variable& parameter) const {
  const auto found = positions_.find(parameter.id());
  return found == positions_.end() ? nullptr : &entries_[found->second];
}

}  // namespace sg

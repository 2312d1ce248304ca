// Which unit has which parameter.
#pragma once
#include <cstddef>
#include <span>
#include <unordered_map>
#include <vector>

#include "autograd/hooks.h"

namespace sg {

class UnitMap {
 public:
  struct Entry {
    Variable parameter;
    size_t owner = 0;           // the unit that it belongs to: the first that has it
    std::vector<size_t> users;  // all that have it, in the units' order
    size_t position = 0;        // in entries()
  };
  UnitMap() = default;
  explicit UnitMap(std::span<const Unit> units);

  // Every parameter once, in registration order; a tied one where it comes first.
  const std::vector<Entry>& entries() const { return entries_; }
  const Entry* find(const Variable& parameter) const;  // null: no unit has it

 private:
  std::vector<Entry> entries_;
  std::unordered_map<const void*, size_t> positions_;
};

}  // namespace sg

// Which calls of units are open within a micro-step, and so when a parameter can get no more
// gradient.
//
// Ranks that gather units in backward must make all their calls in one order, even where only some
// of them use a parameter. So a tied parameter's gradient counts when the last call of its units
// has ended, which is the same moment on all ranks, whether a gradient has arrived or not. What a
// single unit has may count at once: it ends within that unit's call.
#pragma once
#include <vector>

#include "dist/engines/flat_space.h"

namespace sg::dist {

class UnitCalls {
 public:
  explicit UnitCalls(const EngineLayout& on)
      : on_(on), units_(on.units.size()), read_outside_(on.space.parameters().size()) {}

  void forget();  // no call is open, nothing has been read
  void forward(size_t unit) { ++units_[unit].open; }
  void backward_begins(size_t unit) { ++units_[unit].in_backward; }
  void backward_ends(size_t unit);

  // Whether this thread is in a call of a unit that has the parameter: also in its backward, where
  // a region of it is computed again.
  bool within(int position) const;
  // It was read outside of its units' calls: it may get a gradient until the micro-step's end.
  void read_outside(int position) { read_outside_[position] = true; }
  bool all_ended(int position) const;

 private:
  struct Calls {
    int open = 0;         // forward calls whose backward hasn't ended
    int in_backward = 0;  // running
  };
  const std::vector<size_t>& users_of(int position) const;

  const EngineLayout on_;
  std::vector<Calls> units_;
  std::vector<bool> read_outside_;  // by position
};

}  // namespace sg::dist

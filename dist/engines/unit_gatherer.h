// Parameters whose units come and go: ranks then communicate within forward and backward.
#pragma once
#include <span>

#include "autograd/variable.h"

namespace sg::dist {

class UnitGatherer {
 public:
  // These parameters are whole here from gather to release.
  virtual void gather(std::span<const Variable> parameters) = 0;
  virtual void release(std::span<const Variable> parameters) = 0;
  virtual void begin_micro_step() = 0;
  virtual void end_micro_step() = 0;  // also where an exception ends it; doesn't throw

 protected:
  ~UnitGatherer() = default;
};

}  // namespace sg::dist

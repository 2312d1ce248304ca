#include "dist/engines/take_over.h"

#include "core/error.h"
#include "core/ops.h"

namespace sg::dist {
namespace {

class Gone final : public LeafKeeper {
 public:
  void before_read(const Variable& leaf, int) override {
    fail(ErrorKind::usage,
         "{}: its value went with the engine that had it (it didn't fit on this device, or a peer "
         "was lost): initialize "
         "an engine over it again and load a checkpoint, or make the model anew",
         leaf.name());
  }
  void hand_over() override {}
};
Gone gone;

}  // namespace

void take_from_other_engines(std::span<const Unit> units) {
  for (const Unit& unit : units) {
    for (Variable p : unit.parameters) {
      if (p.keeper())
        p.keeper()->hand_over();
      p.set_keeper(nullptr);
    }
  }
}

void leave_without_value(Variable& parameter) {
  parameter.set_keeper(&gone);
  parameter.set_tensor(empty(parameter.shape(), parameter.dtype(), unplaced));
}

}  // namespace sg::dist

// What an engine does when something fails, and at its end. Whatever a part of a step throws drops
// the whole step: what was under way is waited for, what it gathered is released, its counters
// start again. Ranks that failed alike meet at the next forward in a call that names the failure; a
// rank that failed alone makes that call while its peers make another, and the comparison of calls
// tells everybody.
#include "core/error.h"
#include "dist/engines/bucket_engine.h"
#include "dist/engines/take_over.h"

namespace sg::dist {

void BucketEngine::check_alive(const char* caller) const {
  check(
      !retired_, "{}: another engine was initialized over this one's units: use that one", caller);
  check(!running_, "{}: a step is running: call it outside of the closure and of hooks", caller);
  check(ErrorKind::peer,
        lost_.empty(),
        "{}: this engine's group has failed and can't go on: {}",
        caller,
        lost_);
}

void BucketEngine::check_usable(const char* caller) const {
  check_alive(caller);
  check(torn_.empty(), "{}: {}: parameters are of two steps; load a checkpoint", caller, torn_);
}

void BucketEngine::check_between_steps(const char* caller, const char* remedy) const {
  check(turn_ == Turn::idle && micro_step_ == 0,
        "{}: {} of {} micro-steps are done; {} between steps",
        caller,
        micro_step_ + (turn_ == Turn::backward_done),
        options_.micro_steps,
        remedy);
}

void BucketEngine::drop_step() noexcept {
  try {
    comm_.stream().synchronize();
    if (sums_)
      sums_->drop();
  } catch (const std::exception& e) {
    lost_ = e.what();
  }
  under_way_.clear();
  in_backward_ = false;
  if (units_part_)
    units_part_->end_micro_step();
  for (int b = 0; b < std::ssize(space_.buckets()); ++b) {
    forget_gradients(space_, b);
    gradients_part_->release(b);
  }
  begin_gradients();
  forget_step(mine_);
  micro_step_ = 0;
  turn_ = Turn::idle;
  ++failures_;
}

// Where all ranks failed alike they go on together.
void BucketEngine::rejoin() {
  if (failures_ > 0 && comm_.size() > 1) {
    const Call call{fmt::format("engine.again after failure {} in step {}", failures_, step_),
                    Phase::check};
    comm_.barrier(call).wait();
  }
  failures_ = 0;
}

void BucketEngine::before_read(const Variable& leaf, int number) {
  (void)leaf;
  const bool is_frozen = number < 0;
  if (!is_frozen)
    parameters_part_->before_use(number);
}

// ---- the end

void BucketEngine::hand_over() {
  check(!running_, "initialize: a step is running in the engine that has these parameters");
  retire();
}

BucketEngine::~BucketEngine() {
  retire();
}

void BucketEngine::retire() noexcept {
  if (retired_)
    return;
  retired_ = true;
  // Peers of a rank that an exception is ending don't come to meet it.
  const bool alone = std::uncaught_exceptions() > exceptions_;
  const bool begun = !hooks_.empty();
  if (begun)
    drop_step();
  bool whole = false;
  try {
    whole = begun && lost_.empty() && parameters_part_->give_back(alone && comm_.size() > 1);
  } catch (const std::exception& e) {
    lost_ = e.what();
  }
  for (const Placed& placed : space_.parameters()) {
    Variable p = placed.parameter;
    if (!whole && (begun || !p.held().storage()->resident()))
      leave_without_value(p);
    else if (p.keeper() == this)
      p.set_keeper(nullptr);
    p.set_gradient_buffer({});
    p.zero_grad();  // a view of the engine's memory
  }
  int position = 0;
  for (uint64_t hook : hooks_) {
    Variable p = space_.parameter(position++).parameter;
    p.remove_hook(hook);
  }
  for (Variable& p : frozen_)
    if (p.keeper() == this)
      p.set_keeper(nullptr);
  for (const Unit& unit : units_)
    *unit.hooks = {};
  optimizer_.reset();
  sums_.reset();
  gradients_part_.reset();
  units_part_ = nullptr;
  parameters_part_.reset();
}

}  // namespace sg::dist

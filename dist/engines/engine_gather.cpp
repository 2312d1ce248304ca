// Whole parameters for the program's own code, and its edits back into shards and masters.
#include <algorithm>

#include "core/error.h"
#include "core/ops.h"
#include "dist/engines/bucket_engine.h"

namespace sg::dist {

void BucketEngine::gather(std::span<const Variable> parameters, const std::function<void()>& use) {
  check_usable("gather");
  check(phase_ == Progress::idle && micro_step_ == 0,
        "gather: {} of {} micro-steps are done; gather between steps",
        micro_step_ + (phase_ == Progress::backward_done),
        options_.micro_steps);
  for (const Variable& p : parameters)
    check(
        space_.position_of(p) >= 0 || std::find(frozen_.begin(), frozen_.end(), p) != frozen_.end(),
        "gather: {} is no parameter of this engine",
        p.name());
  synchronize();
  struct Held {
    BucketEngine& engine;
    std::span<const Variable> parameters;
    ~Held() { engine.let_go(parameters); }
  };
  hold(parameters);
  const Held held{*this, parameters};
  std::exception_ptr failure;
  try {
    use();
  } catch (...) {
    failure = std::current_exception();
  }
  // Also what was changed before a failure: on all ranks alike, whichever of them failed.
  for (const Variable& p : parameters)
    take_back(p);
  optimizer_->publish_masters();
  if (failure)
    std::rethrow_exception(failure);
}

// What rank 0 has of it becomes everybody's. An element that still is its master, rounded, keeps
// that master.
void BucketEngine::take_back(const Variable& p) {
  comm_.broadcast({"gather." + p.name(), Phase::setup}, p.held(), 0).wait();
  const int position = space_.position_of(p);
  if (position < 0)
    return;  // frozen: it is its only value
  const Placed& placed = space_.parameters()[static_cast<size_t>(position)];
  CategoryScope scope(Category::workspace);
  for_owned(placed, [&](const Tensor& master, int64_t begin, int64_t end) {
    const Tensor value = p.held().flatten().slice(0, begin, end);
    if (!is_16bit(value.dtype())) {
      if (master.storage() != value.storage())
        copy_(master, value);
      return;
    }
    const Tensor edited = cast(value, DType::f32),
                 rounded = cast(cast(master, value.dtype()), DType::f32);
    pointwise_(PointwiseOp::where,
               master,
               {pointwise(PointwiseOp::equal, {edited, rounded}), master, edited});
  });
}

}  // namespace sg::dist

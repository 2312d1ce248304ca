// Whole parameters for the program's own code, and its edits back into shards and masters.
#include "core/error.h"
#include "core/ops.h"
#include "dist/engines/bucket_engine.h"

namespace sg::dist {

void BucketEngine::gather(std::span<const Variable> parameters, const std::function<void()>& use) {
  check_usable("gather");
  check_between_steps("gather", "gather");
  for (const Variable& p : parameters)
    check(map_.find(p), "gather: {} is no parameter of this engine", p.name());
  synchronize();
  struct Whole {
    UnitGatherer* units;
    std::span<const Variable> parameters;
    ~Whole() {
      if (units)
        units->release(parameters);
    }
  };
  if (units_part_)
    units_part_->gather(parameters);
  const Whole whole{units_part_, parameters};
  std::exception_ptr failure;
  try {
    use();
  } catch (...) {
    failure = std::current_exception();
  }
  // Also what was changed before a failure: on all ranks alike, whichever of them failed.
  for (const Variable& p : parameters)
    take_back(p);
  optimizer_->cast_masters();
  if (failure)
    std::rethrow_exception(failure);
}

// What rank 0 has of it becomes everybody's. An element that still is its master, rounded, keeps
// that master.
void BucketEngine::take_back(const Variable& p) {
  comm_.broadcast({"gather." + p.name(), Phase::setup}, p.held(), 0).wait();
  const int position = space_.position_of(p);
  const bool is_frozen = position < 0;
  if (is_frozen)
    return;  // that is its only value
  CategoryScope scope(Category::workspace);
  const auto take = [&](const Tensor& master, int64_t begin, int64_t end) {
    const Tensor value = p.held().flatten().slice(0, begin, end);
    if (!is_16bit(value.dtype())) {
      if (master.storage() != value.storage())
        copy_(master, value);
      return;
    }
    const Tensor own = to(master, value.device());
    const Tensor edited = cast(value, DType::f32);
    const Tensor rounded = cast(cast(own, value.dtype()), DType::f32);
    const Tensor is_unchanged = pointwise(PointwiseOp::equal, {edited, rounded});
    pointwise_(PointwiseOp::where, own, {is_unchanged, own, edited});
    if (own.storage() != master.storage())
      copy_(master, own);
  };
  optimizer_->visit_masters(space_.parameter(position), take);
}

}  // namespace sg::dist

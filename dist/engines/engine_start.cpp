// How an engine begins: what it trains is laid out, its optimizer gets memory beside the engine's
// two parts, and parameters move there one by one.
#include <algorithm>

#include "core/error.h"
#include "core/ops.h"
#include "dist/engines/bucket_engine.h"
#include "dist/engines/facts.h"
#include "dist/engines/initial_value.h"

namespace sg::dist {
namespace {

// What is without elements has nothing to train.
bool is_trained(const UnitMap::Entry& entry) {
  return entry.parameter.requires_grad() && entry.parameter.numel() > 0;
}

std::vector<Variable> variables_of(const UnitMap& map, bool trained) {
  std::vector<Variable> variables;
  for (const UnitMap::Entry& entry : map.entries())
    if (is_trained(entry) == trained)
      variables.push_back(entry.parameter);
  return variables;
}

// The unit of each trained parameter; empty for engines whose buckets needn't keep to units.
std::vector<int> units_of(const UnitMap& map, EngineKind engine) {
  std::vector<int> owners;
  if (!facts_of(engine).gathers_units)
    return owners;
  for (const UnitMap::Entry& entry : map.entries())
    if (is_trained(entry))
      owners.push_back(entry.owner);
  return owners;
}

}  // namespace

BucketEngine::BucketEngine(std::vector<Unit> units,
                           const Options& options,
                           Comm& comm,
                           Updater updater)
    : units_(std::move(units)),
      options_(options),
      comm_(comm),
      map_(units_),
      space_(
          variables_of(map_, true), options, comm.size(), units_of(map_, options.engine), updater),
      shards_(space_.shards_of(comm.rank())),
      frozen_(variables_of(map_, false)),
      lr_(options.lr) {
  check(options.micro_steps > 0, "engine: micro_steps must be positive: {}", options.micro_steps);
  check(space_.size() > 0, "engine: the model has no trainable parameters");
  if (options.precision == DType::f16)
    scaler_.emplace(options.loss_scale);
  if (comm.device().type != DeviceType::meta)
    norm_.emplace(space_, comm.size());
  updated_.resize(space_.buckets().size());
  if (layout_.state_device() != comm.device())
    copies_.emplace(comm.device());
}

void BucketEngine::start() {
  make_optimizer();
  sums_.emplace(layout_, *gradients_part_, copies_ ? &*copies_ : nullptr);
  for (const Placed& placed : space_.parameters())
    take_over(placed);
  optimizer_->cast_masters();
  take_over_frozen();
  watch_gradients();
}

void BucketEngine::make_optimizer() {
  std::vector<Tensor> parameters;
  for (const Shard& shard : shards_)
    parameters.push_back(parameters_part_->updated(shard));
  CopyStream* const copies = copies_ ? &*copies_ : nullptr;
  optimizer_.emplace(space_, shards_, std::move(parameters), options_.optimizer, copies);
}

// One at a time: what the model was made with is given back as the engine's memory takes its place.
// Masters are the unrounded f32 values.
void BucketEngine::take_over(const Placed& placed) {
  Variable p = placed.parameter;
  const Unit& unit = units_[map_.find(p)->owner];
  const Tensor value = initial_value(p, unit, comm_, Category::live);
  optimizer_->visit_masters(placed, [&](const Tensor& master, int64_t begin, int64_t end) {
    copy_(master, value.flatten().slice(0, begin, end));
  });
  const Tensor place = parameters_part_->place(placed);
  if (place.storage()->resident())
    copy_(place, value);
  p.set_tensor(place);
}

// Every rank keeps them whole, dense, so that a checkpoint can be read into them.
void BucketEngine::take_over_frozen() {
  CategoryScope scope(Category::parameters);
  for (Variable& p : frozen_) {
    const Unit& unit = units_[map_.find(p)->owner];
    const Tensor value = initial_value(p, unit, comm_, Category::parameters);
    p.set_tensor(cast(value, options_.precision));
    p.set_keeper(this, -1);
  }
}

void BucketEngine::watch_gradients() {
  begin_gradients();
  for (int i = 0; i < std::ssize(space_.parameters()); ++i) {
    Variable p = space_.parameter(i).parameter;
    p.set_gradient_buffer([this, i] { return gradient_of(i); });
    hooks_.push_back(p.on_gradient([this, i](const Variable&) { arrived(i); }));
    p.set_keeper(this, i);
  }
  // Every rank and every engine records the same graph for what a unit hands on.
  const auto is_ours = [&](const Variable& p) { return space_.position_of(p) >= 0; };
  for (const Unit& unit : units_) {
    const std::vector<Variable>& all = unit.parameters;
    unit.hooks->recorded = std::any_of(all.begin(), all.end(), is_ours);
  }
}

}  // namespace sg::dist

#include "dist/engines/bucket_engine.h"

#include <algorithm>

#include "autograd/backward.h"
#include "autograd/ops.h"
#include "autograd/targets.h"
#include "core/error.h"
#include "core/ops.h"
#include "core/shard_array.h"
#include "core/trace.h"
#include "dist/engines/initial_value.h"

namespace sg::dist {
namespace {

// Those without elements have nothing to train.
std::vector<Variable> variables_of(const std::vector<Unit>& units, bool trainable) {
  std::vector<Variable> all;
  for (const Unit& unit : units) {
    for (const Variable& p : unit.parameters) {
      const bool known =
          std::find(all.begin(), all.end(), p) != all.end();  // tied: once, where it comes first
      const bool trained = p.requires_grad() && p.numel() > 0;
      if (trained == trainable && !known)
        all.push_back(p);
    }
  }
  return all;
}

// The unit that each trainable parameter belongs to: the first that has it.
std::vector<int> units_of(const std::vector<Unit>& units) {
  std::vector<int> result;
  std::vector<Variable> all = variables_of(units, true);
  for (const Variable& p : all) {
    const auto owner = std::find_if(units.begin(), units.end(), [&](const Unit& unit) {
      return std::find(unit.parameters.begin(), unit.parameters.end(), p) != unit.parameters.end();
    });
    result.push_back(static_cast<int>(owner - units.begin()));
  }
  return result;
}

// Losses have counted their targets: a weight that is missing or another's would be a wrong step.
void check_weight(const std::optional<Targets>& given, const TargetsMet& met) {
  check(given || met.targets() == met.positions(),
        "forward: {} of {} positions have no target (−1): give forward their number, {{.count = "
        "{}, .of = micro-batch × "
        "context}}, so that the step follows the mean over all its targets",
        met.positions() - met.targets(),
        met.positions(),
        met.targets());
  check(!given || met.losses() != 1 || met.targets() == given->count,
        "forward: it was given {} targets, the loss counted {}",
        given ? given->count : 0,
        met.targets());
}

}  // namespace

BucketEngine::BucketEngine(std::vector<Unit> units, const Options& options, Comm& comm)
    : units_(std::move(units)),
      options_(options),
      comm_(comm),
      frozen_(variables_of(units_, false)),
      space_(variables_of(units_, true),
             options,
             comm.size(),
             options.engine == EngineKind::zero3 ? units_of(units_) : std::vector<int>{}),
      lr_(options.lr) {
  check(options.micro_steps > 0, "engine: micro_steps must be positive: {}", options.micro_steps);
  check(space_.size() > 0, "engine: the model has no trainable parameters");
  if (options.precision == DType::f16)
    scaler_.emplace(options.loss_scale);
}

void BucketEngine::start() try {
  own_parts();
  make_sums();
  for (const Placed& placed : space_.parameters())
    take_over(placed);
  optimizer_->publish_masters();
  place_frozen();
  watch();
} catch (const OutOfMemory& e) {
  throw explained(e, options_, comm_, space_.size());
}

// Which parts this rank updates, where their parameters and optimizer state lie, and who gives what
// to the norm.
void BucketEngine::own_parts() {
  const bool dry = comm_.device().type ==
                   DeviceType::meta;  // no values, no norm: what others hold doesn't matter
  std::vector<std::vector<Slice>> held;
  for (size_t b = 0; b < space_.buckets().size(); ++b) {
    for (const Message& message : space_.buckets()[b].messages) {
      const Shards shards = owners(message);
      held.resize(static_cast<size_t>(shards.ranks()));
      for (int rank = 0; rank < shards.ranks(); ++rank) {
        const bool mine = rank == comm_.rank() || shards.ranks() == 1;
        if (dry && !mine)
          continue;
        const int64_t begin = message.begin + shards.offset(rank), end = begin + shards.count(rank);
        for (const Slice& slice : space_.slices(begin, end))
          held[static_cast<size_t>(rank)].push_back(slice);
        if (mine && begin < end)
          owned_.push_back({static_cast<int>(b), begin, end, {}});
      }
    }
  }
  norm_ = std::make_unique<GradientNorm>(space_, std::move(held));
  allocate(owned_);
  std::vector<OwnedRange> ranges;
  for (const Owned& part : owned_)
    ranges.push_back({part.begin, part.end, parameters_of(part)});
  optimizer_ = std::make_unique<ShardedOptimizer>(space_, std::move(ranges), options_.optimizer);
}

// Where what crosses arrives, and where micro-steps add up: on every rank before they cross, or at
// the owner after.
void BucketEngine::make_sums() {
  const int k = options_.micro_steps,
            levels = options_.elastic_determinism ? MicroStepSum::tree_levels(k) : 1;
  if (!ranks_first() && k > 1) {
    CategoryScope scope(Category::accumulation);
    accumulated_ = empty({space_.size()});
  }
  const bool sums = options_.elastic_determinism || (ranks_first() && k > 1);
  ShardArray arrays(sums ? levels * owned_size(owned_) : 0, DType::f32, Category::accumulation);
  for (Owned& part : owned_) {
    const int64_t size = part.end - part.begin;
    if (options_.elastic_determinism) {
      std::vector<Tensor> tree;
      for (int level = 0; level < levels; ++level)
        tree.push_back(arrays.next(size));
      part.gradient = MicroStepSum::tree(std::move(tree), k);
    } else {
      part.gradient =
          MicroStepSum::left_to_right(mean_of(part), sums ? arrays.next(size) : Tensor());
    }
  }
}

// One at a time: what the model was made with is given back as the engine's memory takes its place.
// Masters are the unrounded f32 values.
void BucketEngine::take_over(const Placed& parameter) {
  const Tensor value = initial_value(parameter.parameter, units_, comm_, Category::live);
  for_owned(parameter, [&](const Tensor& master, int64_t begin, int64_t end) {
    copy_(master, value.flatten().slice(0, begin, end));
  });
  place(parameter, value);
}

void BucketEngine::for_owned(const Placed& p,
                             const std::function<void(const Tensor&, int64_t, int64_t)>& visit) {
  const int64_t end = p.offset + p.size;
  auto part = std::partition_point(
      owned_.begin(), owned_.end(), [&](const Owned& o) { return o.end <= p.offset; });
  for (; part != owned_.end() && part->begin < end; ++part) {
    const int64_t first = std::max(part->begin, p.offset), last = std::min(part->end, end);
    const Tensor& master = optimizer_->master(static_cast<size_t>(part - owned_.begin()));
    visit(master.slice(0, first - part->begin, last - part->begin),
          first - p.offset,
          last - p.offset);
  }
}

// Every rank keeps them whole, dense, so that a checkpoint can be read into them.
void BucketEngine::place_frozen() {
  CategoryScope scope(Category::parameters);
  for (Variable& p : frozen_) {
    p.set_tensor(cast(initial_value(p, units_, comm_, Category::parameters), options_.precision));
    p.set_keeper(this, -1);
  }
}

void BucketEngine::watch() {
  begin_gradients();
  for (size_t i = 0; i < space_.parameters().size(); ++i) {
    Variable p = space_.parameters()[i].parameter;
    const int position = static_cast<int>(i);
    p.set_gradient_buffer([this, position] { return gradient_of(position); });
    hooks_.push_back(p.on_gradient([this, position](const Variable&) { arrived(position); }));
    p.set_keeper(this, position);
  }
  // Every rank and every engine records the same graph for what a unit hands on.
  for (Unit& unit : units_) {
    const auto trained = [&](const Variable& p) { return space_.position_of(p) >= 0; };
    unit.hooks->recorded = std::any_of(unit.parameters.begin(), unit.parameters.end(), trained);
  }
}

// No gradient of the micro-step to come is there yet.
void BucketEngine::begin_gradients() {
  missing_.resize(space_.buckets().size());
  for (size_t b = 0; b < missing_.size(); ++b)
    missing_[b] = space_.buckets()[b].last - space_.buckets()[b].first;
  seen_.assign(space_.parameters().size(), Seen::nothing);
  next_bucket_ = 0;
}

Tensor BucketEngine::gradient_of(int position) {
  const Placed& placed = space_.parameters()[static_cast<size_t>(position)];
  const int bucket = space_.bucket_of(position);
  const int64_t begin = placed.offset - space_.buckets()[static_cast<size_t>(bucket)].begin;
  return open(bucket).slice(0, begin, begin + placed.size).reshape(placed.parameter.shape());
}

// ---- a micro-step

double BucketEngine::seed() const {
  return scale_ * weight_ /
         (options_.micro_steps * (divides_at_loss() ? comm_.size() : options_.predivide));
}

void BucketEngine::weigh(const std::optional<Targets>& targets) {
  weight_ = 1;
  if (!targets)
    return;
  check(targets->of > 0 && targets->count >= 0 && targets->count <= targets->of,
        "forward: {} targets of {} positions: give the micro-batch's targets and the run's "
        "micro-batch × context",
        targets->count,
        targets->of);
  check(positions_ == 0 || positions_ == targets->of,
        "forward: targets of {} positions in a step whose micro-batches before are of {}: it is "
        "the run's micro-batch × "
        "context, not the batch's own size",
        targets->of,
        positions_);
  positions_ = targets->of;
  weight_ = static_cast<double>(targets->count) / static_cast<double>(targets->of);
}

Variable BucketEngine::forward(const std::function<Variable()>& loss,
                               const std::optional<Targets>& targets) {
  check_usable("forward");
  check(phase_ != Progress::backward_done,
        "forward: call step first: gradients of the micro-step before wait for it");
  const trace::Span span("forward");
  return attempt([&] {
    rejoin();
    scale_ = scaler_ ? scaler_->scale() : 1;
    weigh(targets);
    begin_micro_step();
    const float expected = static_cast<float>(seed());
    ExpectedSeed scope(weight_ > 0 ? std::optional<float>(expected) : std::nullopt);
    TargetsMet met;
    Variable result = loss();
    check(result.defined() && result.numel() == 1 && result.dtype() == DType::f32,
          "forward: the closure must return one f32 loss");
    if (result.device().type != DeviceType::meta)
      check_weight(targets, met);
    phase_ = Progress::forward_done;
    return result;
  });
}

void BucketEngine::backward(const Variable& loss) {
  check_usable("backward");
  check(phase_ == Progress::forward_done,
        "backward: call forward first, and step between two backward passes");
  const trace::Span span("backward");
  attempt([&] {
    const bool backed = loss.device().type != DeviceType::meta;
    losses_.push_back(backed && weight_ > 0 ? loss.item() : 0.0f);
    weights_.push_back(weight_);
    in_backward_ = true;
    if (weight_ > 0 || communicates_in_backward())
      check_leaves(sg::backward(loss, {.seed = full(loss.shape(), seed())}));
    // Parameters that this pass didn't reach count as zero, so that nothing stale survives.
    for (size_t i = 0; i < seen_.size(); ++i)
      count(static_cast<int>(i));
    in_backward_ = false;
    invariant(next_bucket_ == static_cast<int>(missing_.size()),
              "engine: bucket {} never filled",
              next_bucket_);
    if (ranks_first() && options_.micro_steps > 1)
      limit_in_flight(0);
    begin_gradients();
    end_micro_step();
    phase_ = Progress::backward_done;
  });
}

// A leaf that no optimizer sees would keep its first value for ever.
void BucketEngine::check_leaves(std::span<const Variable> reached) const {
  for (const Variable& leaf : reached)
    check(leaf.keeper() == this,
          "backward: '{}' {} has a gradient but is no parameter of this engine: register its "
          "module with add or "
          "add_unit, or detach it",
          leaf.name(),
          leaf.shape());
}

void BucketEngine::arrived(int position) {
  Seen& seen = seen_[static_cast<size_t>(position)];
  const std::string& name = space_.parameters()[static_cast<size_t>(position)].parameter.name();
  check(in_backward_,
        "backward: {} is an engine's parameter: its gradients are made by engine->backward",
        name);
  check(seen == Seen::nothing,
        "backward: a gradient of {} comes after the last call of its units: use it within them",
        name);
  seen = Seen::gradient;
  if (counts_at_once(position))
    count(position);
}

void BucketEngine::count(int position) {
  Seen& seen = seen_[static_cast<size_t>(position)];
  if (seen == Seen::counted)
    return;
  if (seen == Seen::nothing || weight_ == 0)
    fill_(space_.parameters()[static_cast<size_t>(position)].parameter.gradient_buffer(), 0);
  seen = Seen::counted;
  --missing_[static_cast<size_t>(space_.bucket_of(position))];
  const int buckets = static_cast<int>(missing_.size());
  while (next_bucket_ < buckets && missing_[static_cast<size_t>(next_bucket_)] == 0)
    leave(next_bucket_++);
}

// A full bucket leaves: into the accumulator, over the ranks, or both.
void BucketEngine::leave(int b) {
  const Bucket& bucket = space_.buckets()[static_cast<size_t>(b)];
  missing_[static_cast<size_t>(b)] = bucket.last - bucket.first;
  Tensor gradient = open(b);
  if (accumulated_.defined()) {
    const Tensor sum = accumulated_.slice(0, bucket.begin, bucket.end);
    if (micro_step_ == 0)
      copy_(sum, gradient);
    else
      accumulate_(sum, gradient);
    if (!last_micro_step())
      return close(b);
    gradient = crossing(sum, gradient);
  } else {
    gradient = crossing(gradient, gradient);
  }
  Pending pending{b, {}};
  for (size_t m = 0; m < bucket.messages.size(); ++m) {
    const Message& message = bucket.messages[m];
    const auto part = std::find_if(owned_.begin(), owned_.end(), [&](const Owned& o) {
      return o.begin >= message.begin && o.end <= message.end;
    });
    const Tensor mean =
        part == owned_.end() ? empty({0}, mean_dtype()) : part->gradient.arrival(micro_step_);
    const Call call{fmt::format("{}.gradient.{}.{} from {}",
                                name_of(options_.engine),
                                b,
                                m,
                                space_.at(message.begin).parameter.name()),
                    Phase::step};
    pending.works.push_back(
        reduce(call,
               message,
               gradient.slice(0, message.begin - bucket.begin, message.end - bucket.begin),
               mean));
  }
  pending_.push_back(std::move(pending));
  if (!options_.overlap)
    limit_in_flight(0);
}

// The gradient in the dtype in which it crosses: itself, or a copy in its bucket's buffer or in one
// that lasts until it has crossed.
Tensor BucketEngine::crossing(const Tensor& gradient, const Tensor& buffer) {
  if (gradient.dtype() == crossing_dtype())
    return gradient;
  if (buffer.dtype() == crossing_dtype()) {
    copy_(buffer, gradient);
    return buffer;
  }
  limit_in_flight(1);
  CategoryScope scope(Category::buckets);
  return cast(gradient, crossing_dtype());
}

void BucketEngine::drop_gradients(int b) {
  const Bucket& bucket = space_.buckets()[static_cast<size_t>(b)];
  for (int i = bucket.first; i < bucket.last; ++i) {
    Variable p = space_.parameters()[static_cast<size_t>(i)].parameter;
    p.zero_grad();
  }
}

void BucketEngine::limit_in_flight(size_t buckets) {
  for (; pending_.size() > buckets; pending_.pop_front())
    settle(pending_.front());
}

void BucketEngine::settle(const Pending& pending) {
  const Bucket& bucket = space_.buckets()[static_cast<size_t>(pending.bucket)];
  for (size_t m = 0; m < pending.works.size(); ++m) {
    Work work = pending.works[m];
    work.wait();
    if (auto found = work.nonfinite(); found && !nonfinite_)
      nonfinite_ = NonFinite{found->rank, bucket.messages[m].begin + found->offset};
  }
  close(pending.bucket);
  for (Owned& part : owned_) {
    if (part.bucket == pending.bucket)
      part.gradient.arrived(micro_step_);
  }
}

// ---- the end of a step

StepResult BucketEngine::step() {
  check_usable("step");
  check(phase_ == Progress::backward_done, "step: call forward and backward first");
  const trace::Span span("step");
  return attempt([&] {
    phase_ = Progress::idle;
    if (last_micro_step())
      return end_step();
    ++micro_step_;
    return StepResult();
  });
}

}  // namespace sg::dist

#include "dist/engines/bucket_engine.h"

#include <algorithm>
#include <cmath>

#include "autograd/backward.h"
#include "autograd/ops.h"
#include "core/error.h"
#include "core/ops.h"
#include "core/shard_array.h"
#include "core/trace.h"
#include "dist/comm/reduce.h"
#include "dist/engines/initial_value.h"

namespace sg::dist {
namespace {

// Those without elements have nothing to train.
std::vector<Variable> variables_of(const std::vector<Unit>& units, bool trainable) {
  std::vector<Variable> all;
  for (const Unit& unit : units) {
    for (const Variable& p : unit.parameters) {
      const bool known = std::find(all.begin(), all.end(), p) != all.end();  // tied: once, where it comes first
      const bool trained = p.requires_grad() && p.numel() > 0;
      if (trained == trainable && !known) all.push_back(p);
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

std::vector<std::vector<double>> roots_of(const std::vector<StepReport>& reports, int ranks) {
  std::vector<std::vector<double>> roots;
  for (int rank = 0; rank < ranks; ++rank) roots.push_back(reports[static_cast<size_t>(rank)].roots);
  return roots;
}

}  // namespace

BucketEngine::BucketEngine(std::vector<Unit> units, const Options& options, Comm& comm)
    : units_(std::move(units)),
      options_(options),
      comm_(comm),
      frozen_(variables_of(units_, false)),
      space_(variables_of(units_, true), options, comm.size(),
             options.engine == EngineKind::zero3 ? units_of(units_) : std::vector<int>{}),
      lr_(options.lr) {
  check(options.micro_steps > 0, "engine: micro_steps must be positive: {}", options.micro_steps);
  check(space_.size() > 0, "engine: the model has no trainable parameters");
  if (options.precision == DType::f16) scaler_.emplace(options.loss_scale);
}

void BucketEngine::start() try {
  own_parts();
  make_sums();
  for (const Placed& placed : space_.parameters()) take_over(placed);
  optimizer_->publish_masters();
  place_frozen();
  watch();
} catch (const OutOfMemory& e) { throw explained(e, options_, comm_, space_.size()); }

// Which parts this rank updates, where their parameters and optimizer state lie, and who gives what to the norm.
void BucketEngine::own_parts() {
  const bool dry = comm_.device().type == DeviceType::meta;  // no values, no norm: what others hold doesn't matter
  std::vector<std::vector<Slice>> held;
  for (size_t b = 0; b < space_.buckets().size(); ++b) {
    for (const Message& message : space_.buckets()[b].messages) {
      const Shards shards = owners(message);
      held.resize(static_cast<size_t>(shards.ranks()));
      for (int rank = 0; rank < shards.ranks(); ++rank) {
        const bool mine = rank == comm_.rank() || shards.ranks() == 1;
        if (dry && !mine) continue;
        const int64_t begin = message.begin + shards.offset(rank), end = begin + shards.count(rank);
        for (const Slice& slice : space_.slices(begin, end)) held[static_cast<size_t>(rank)].push_back(slice);
        if (mine && begin < end) owned_.push_back({static_cast<int>(b), begin, end, {}});
      }
    }
  }
  norm_ = std::make_unique<GradientNorm>(space_, std::move(held));
  allocate(owned_);
  std::vector<OwnedRange> ranges;
  for (const Owned& part : owned_) ranges.push_back({part.begin, part.end, parameters_of(part)});
  optimizer_ = std::make_unique<ShardedOptimizer>(space_, std::move(ranges), options_.optimizer);
}

// Where what crosses arrives, and where micro-steps add up: on every rank before they cross, or at the owner after.
void BucketEngine::make_sums() {
  const int k = options_.micro_steps, levels = options_.elastic_determinism ? MicroStepSum::tree_levels(k) : 1;
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
      for (int level = 0; level < levels; ++level) tree.push_back(arrays.next(size));
      part.gradient = MicroStepSum::tree(std::move(tree), k);
    } else {
      part.gradient = MicroStepSum::left_to_right(mean_of(part), sums ? arrays.next(size) : Tensor());
    }
  }
}

// One at a time: what the model was made with is given back as the engine's memory takes its place. Masters are the
// unrounded f32 values.
void BucketEngine::take_over(const Placed& parameter) {
  const Tensor value = initial_value(parameter.parameter, units_, comm_, Category::live);
  for_owned(parameter, [&](const Tensor& master, int64_t begin, int64_t end) {
    copy_(master, value.flatten().slice(0, begin, end));
  });
  place(parameter, value);
}

void BucketEngine::for_owned(const Placed& p, const std::function<void(const Tensor&, int64_t, int64_t)>& visit) {
  const int64_t end = p.offset + p.size;
  auto part = std::partition_point(owned_.begin(), owned_.end(), [&](const Owned& o) { return o.end <= p.offset; });
  for (; part != owned_.end() && part->begin < end; ++part) {
    const int64_t first = std::max(part->begin, p.offset), last = std::min(part->end, end);
    const Tensor& master = optimizer_->master(static_cast<size_t>(part - owned_.begin()));
    visit(master.slice(0, first - part->begin, last - part->begin), first - p.offset, last - p.offset);
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
  for (size_t b = 0; b < missing_.size(); ++b) missing_[b] = space_.buckets()[b].last - space_.buckets()[b].first;
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
  return scale_ / (options_.micro_steps * (divides_at_loss() ? comm_.size() : options_.predivide));
}

Variable BucketEngine::forward(const std::function<Variable()>& loss) {
  check_usable("forward");
  check(phase_ != Progress::backward_done, "forward: call step first: gradients of the micro-step before wait for it");
  const trace::Span span("forward");
  return attempt([&] {
    rejoin();
    scale_ = scaler_ ? scaler_->scale() : 1;
    begin_micro_step();
    ExpectedSeed scope(static_cast<float>(seed()));
    Variable result = loss();
    check(result.defined() && result.numel() == 1 && result.dtype() == DType::f32,
          "forward: the closure must return one f32 loss");
    phase_ = Progress::forward_done;
    return result;
  });
}

void BucketEngine::backward(const Variable& loss) {
  check_usable("backward");
  check(phase_ == Progress::forward_done, "backward: call forward first, and step between two backward passes");
  const trace::Span span("backward");
  attempt([&] {
    const bool backed = loss.device().type != DeviceType::meta;
    losses_.push_back(backed ? loss.item() : 0.0f);
    in_backward_ = true;
    check_leaves(sg::backward(loss, {.seed = full(loss.shape(), seed())}));
    // Parameters that this pass didn't reach count as zero, so that nothing stale survives.
    for (size_t i = 0; i < seen_.size(); ++i) count(static_cast<int>(i));
    in_backward_ = false;
    invariant(next_bucket_ == static_cast<int>(missing_.size()), "engine: bucket {} never filled", next_bucket_);
    if (ranks_first() && options_.micro_steps > 1) limit_in_flight(0);
    begin_gradients();
    end_micro_step();
    phase_ = Progress::backward_done;
  });
}

// A leaf that no optimizer sees would keep its first value for ever.
void BucketEngine::check_leaves(std::span<const Variable> reached) const {
  for (const Variable& leaf : reached)
    check(leaf.keeper() == this,
          "backward: '{}' {} has a gradient but is no parameter of this engine: register its module with add or "
          "add_unit, or detach it",
          leaf.name(), leaf.shape());
}

void BucketEngine::arrived(int position) {
  Seen& seen = seen_[static_cast<size_t>(position)];
  const std::string& name = space_.parameters()[static_cast<size_t>(position)].parameter.name();
  check(in_backward_, "backward: {} is an engine's parameter: its gradients are made by engine->backward", name);
  check(seen == Seen::nothing, "backward: a gradient of {} comes after the last call of its units: use it within them",
        name);
  seen = Seen::gradient;
  if (counts_at_once(position)) count(position);
}

void BucketEngine::count(int position) {
  Seen& seen = seen_[static_cast<size_t>(position)];
  if (seen == Seen::counted) return;
  if (seen == Seen::nothing) fill_(space_.parameters()[static_cast<size_t>(position)].parameter.gradient_buffer(), 0);
  seen = Seen::counted;
  --missing_[static_cast<size_t>(space_.bucket_of(position))];
  const int buckets = static_cast<int>(missing_.size());
  while (next_bucket_ < buckets && missing_[static_cast<size_t>(next_bucket_)] == 0) leave(next_bucket_++);
}

// A full bucket leaves: into the accumulator, over the ranks, or both.
void BucketEngine::leave(int b) {
  const Bucket& bucket = space_.buckets()[static_cast<size_t>(b)];
  missing_[static_cast<size_t>(b)] = bucket.last - bucket.first;
  Tensor gradient = open(b);
  if (accumulated_.defined()) {
    const Tensor sum = accumulated_.slice(0, bucket.begin, bucket.end);
    if (micro_step_ == 0) copy_(sum, gradient);
    else accumulate_(sum, gradient);
    if (!last_micro_step()) return close(b);
    gradient = crossing(sum, gradient);
  } else {
    gradient = crossing(gradient, gradient);
  }
  Pending pending{b, {}};
  for (size_t m = 0; m < bucket.messages.size(); ++m) {
    const Message& message = bucket.messages[m];
    const auto part = std::find_if(owned_.begin(), owned_.end(),
                                   [&](const Owned& o) { return o.begin >= message.begin && o.end <= message.end; });
    const Tensor mean = part == owned_.end() ? empty({0}, mean_dtype()) : part->gradient.arrival(micro_step_);
    const Call call{fmt::format("{}.gradient.{}.{} from {}", name_of(options_.engine), b, m,
                                space_.at(message.begin).parameter.name()),
                    Phase::step};
    pending.works.push_back(
        reduce(call, message, gradient.slice(0, message.begin - bucket.begin, message.end - bucket.begin), mean));
  }
  pending_.push_back(std::move(pending));
  if (!options_.overlap) limit_in_flight(0);
}

// The gradient in the dtype in which it crosses: itself, or a copy in its bucket's buffer or in one that lasts until it
// has crossed.
Tensor BucketEngine::crossing(const Tensor& gradient, const Tensor& buffer) {
  if (gradient.dtype() == crossing_dtype()) return gradient;
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
  for (; pending_.size() > buckets; pending_.pop_front()) settle(pending_.front());
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
    if (part.bucket == pending.bucket) part.gradient.arrived(micro_step_);
  }
}

// ---- the end of a step

StepResult BucketEngine::step() {
  check_usable("step");
  check(phase_ == Progress::backward_done, "step: call forward and backward first");
  const trace::Span span("step");
  return attempt([&] {
    phase_ = Progress::idle;
    if (last_micro_step()) return end_step();
    ++micro_step_;
    return StepResult();
  });
}

StepResult BucketEngine::end_step() {
  limit_in_flight(0);
  std::vector<Tensor> gradients;
  for (const Owned& part : owned_) gradients.push_back(part.gradient.total());
  StepResult result = judge(exchange(gradients));
  if (result.applied) {
    torn_ = fmt::format("the update of step {} failed half-way", step_);
    optimizer_->step(gradients, lr_, optim::clip_factor(result.norm, options_.clip, result.loss_scale));
    publish();
    torn_.clear();
  }
  ++step_;
  micro_step_ = 0;
  losses_.clear();
  nonfinite_.reset();
  flags_ = 0;
  return result;
}

// Every rank's report, the norm's roots of all parameters among them.
std::vector<StepReport> BucketEngine::exchange(const std::vector<Tensor>& gradients) {
  std::vector<Tensor> runs;  // of one parameter each
  for (size_t i = 0; i < owned_.size(); ++i) {
    for (const Slice& slice : space_.slices(owned_[i].begin, owned_[i].end)) {
      const int64_t begin =
          space_.parameters()[static_cast<size_t>(slice.position)].offset + slice.begin - owned_[i].begin;
      runs.push_back(gradients[i].slice(0, begin, begin + slice.size()));
    }
  }
  if (comm_.device().type == DeviceType::meta) return {{flags_, {}, losses_, {}}};  // a dry run has no values
  const bool whole = norm_->ranks() == 1;  // every rank holds everything: no need to send it
  std::vector<double> roots = norm_->roots(whole ? 0 : comm_.rank(), runs);
  const auto finite = [](double root) { return std::isfinite(root); };
  if (comm_.size() == 1 && !nonfinite_ && !std::all_of(roots.begin(), roots.end(), finite)) look_alone(gradients);
  StepReport mine{flags_, nonfinite_, losses_, {}};
  if (!whole) mine.roots = std::move(roots);
  std::vector<StepReport> reports;
  for (const std::string& bytes : comm_.all_gather_bytes({"step.report", Phase::metrics}, encode(mine))) {
    reports.push_back(decode(bytes));
  }
  if (whole) reports[0].roots = std::move(roots);
  return reports;
}

// With several ranks each reduction told of values that weren't finite; alone, nothing looked while they arrived.
void BucketEngine::look_alone(const std::vector<Tensor>& gradients) {
  for (size_t i = 0; i < gradients.size() && !nonfinite_; ++i) {
    const Tensor& g = gradients[i];
    if (const auto at = first_nonfinite(g.dtype(), g.view().data, g.numel())) {
      nonfinite_ = NonFinite{0, owned_[i].begin + *at};
    }
  }
}

// From what all ranks know, the same verdict on each: whether the update is applied, and if not, why.
StepResult BucketEngine::judge(const std::vector<StepReport>& reports) {
  StepResult result;
  result.complete = true;
  result.loss = mean_loss(reports);
  result.loss_scale = scale_;
  const bool dry = comm_.device().type == DeviceType::meta;
  const std::vector<double> sums =
      dry ? std::vector<double>() : norm_->parameter_sums(roots_of(reports, norm_->ranks()));
  result.norm = optim::global_norm(sums, scale_);
  for (const StepReport& report : reports) result.flags |= report.flags;
  const std::string cause = nonfinite_cause(reports, sums);
  result.applied = cause.empty();
  if (!result.applied) result.skipped = fmt::format("step {}: {}", step_, cause);
  if (scaler_) {
    scaler_->update(!result.applied, result.skipped);
  } else if (!result.applied && options_.on_nonfinite == OnNonFinite::stop) {
    fail(ErrorKind::numeric, "{}; parameters are those of the last step", result.skipped);
  }
  return result;
}

// Which rank's which value isn't finite; empty where all are.
std::string BucketEngine::nonfinite_cause(const std::vector<StepReport>& reports, std::span<const double> sums) const {
  for (size_t j = 0; j < reports[0].losses.size(); ++j) {
    for (size_t rank = 0; rank < reports.size(); ++rank) {
      const float loss = reports[rank].losses[j];
      if (!std::isfinite(loss))
        return fmt::format("the loss is {} (rank {}, micro-batch {})", loss, rank, j * reports.size() + rank);
    }
  }
  const std::string parameter = norm_->first_nonfinite(sums);
  if (parameter.empty()) return {};
  for (const StepReport& report : reports) {
    if (!report.nonfinite) continue;
    const Placed& placed = space_.at(report.nonfinite->offset);
    const std::string where = fmt::format("the gradient of {} isn't finite (element {}", placed.parameter.name(),
                                          report.nonfinite->offset - placed.offset);
    return where +
           (report.nonfinite->rank >= 0 ? fmt::format(", rank {})", report.nonfinite->rank) : ", the sum over ranks)");
  }
  return fmt::format("the gradient of {} isn't finite", parameter);
}

}  // namespace sg::dist

// The course of a micro-step. forward runs the closure; backward runs the pass, in which each
// parameter's gradient is written into its bucket (gradient_of) and reported (arrived). When it
// counts, its bucket misses one less; a bucket that misses none is added to those before it and
// flushed as messages, the next one only after it. What is under way is synchronized when its
// memory is needed, or at the end of the step (engine_step.cpp).
#include "dist/engines/bucket_engine.h"

#include "autograd/backward.h"
#include "autograd/ops.h"
#include "autograd/targets.h"
#include "core/error.h"
#include "core/ops.h"
#include "core/trace.h"

namespace sg::dist {

// ---- forward

bool BucketEngine::divides_at_loss() const {
  return options_.elastic_determinism || options_.prescale_gradients;
}

// What the loss is multiplied by (numerics, rules 2 and 3).
double BucketEngine::seed() const {
  const double ranks = divides_at_loss() ? comm_.size() : options_.predivide;
  return scale_ * weight_ / (options_.micro_steps * ranks);
}

// How the ranks' gradients become their mean, as far as the loss wasn't divided for it.
Reduction BucketEngine::mean_reduction() const {
  const double scale = divides_at_loss() ? 1 : options_.predivide / comm_.size();
  return {.scale = static_cast<float>(scale), .algorithm = options_.reduction};
}

Variable BucketEngine::forward(const std::function<Variable()>& loss,
                               const std::optional<Targets>& targets) {
  check_usable("forward");
  check(turn_ != Turn::backward_done,
        "forward: call step first: gradients of the micro-step before wait for it");
  const trace::Span span("forward");
  return attempt([&] {
    rejoin();
    scale_ = scaler_ ? scaler_->scale() : 1;
    weight_ = weigh(targets, mine_);
    if (units_part_)
      units_part_->begin_micro_step();
    const std::optional<float> expected = seed();
    const ExpectedSeed scope(weight_ > 0 ? expected : std::nullopt);
    const TargetsMet met;
    Variable result = loss();
    check(result.defined() && result.numel() == 1 && result.dtype() == DType::f32,
          "forward: the closure must return one f32 loss");
    if (result.device().type != DeviceType::meta)
      check_targets(targets, met);
    turn_ = Turn::forward_done;
    return result;
  });
}

// ---- backward

void BucketEngine::backward(const Variable& loss) {
  check_usable("backward");
  check(turn_ == Turn::forward_done,
        "backward: call forward first, and step between two backward passes");
  const trace::Span span("backward");
  attempt([&] {
    const bool has_value = loss.device().type != DeviceType::meta && weight_ > 0;
    mine_.losses.push_back(has_value ? loss.item() : 0.0f);
    mine_.weights.push_back(weight_);
    in_backward_ = true;
    const bool peers_wait = units_part_ && comm_.size() > 1;
    if (weight_ > 0 || peers_wait)
      check_leaves(sg::backward(loss, {.seed = full(loss.shape(), seed())}));
    // Parameters that this pass didn't reach count as zero, so that nothing stale survives.
    for (int i = 0; i < std::ssize(seen_); ++i)
      count(i);
    in_backward_ = false;
    invariant(next_bucket_ == std::ssize(missing_), "engine: bucket {} never filled", next_bucket_);
    if (sums_->arrive_by_micro_step())
      synchronize_gradients(0);
    begin_gradients();
    if (units_part_)
      units_part_->end_micro_step();
    turn_ = Turn::backward_done;
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

// No gradient of the micro-step to come is there yet.
void BucketEngine::begin_gradients() {
  missing_.clear();
  for (const Bucket& bucket : space_.buckets())
    missing_.push_back(bucket.last - bucket.first);
  seen_.assign(space_.parameters().size(), Seen::nothing);
  next_bucket_ = 0;
}

// Where backward writes it: a view of its bucket.
Tensor BucketEngine::gradient_of(int position) {
  const Placed& placed = space_.parameter(position);
  const int64_t begin = placed.offset - space_.bucket(placed.bucket).begin;
  sums_->wait_until_left(placed.bucket);
  const Tensor bucket = gradients_part_->open(placed.bucket);
  return bucket.slice(0, begin, begin + placed.size).reshape(placed.parameter.shape());
}

void BucketEngine::arrived(int position) {
  const std::string& name = space_.parameter(position).parameter.name();
  check(in_backward_,
        "backward: {} is an engine's parameter: its gradients are made by engine->backward",
        name);
  check(seen_[position] == Seen::nothing,
        "backward: a gradient of {} comes after the last call of its units: use it within them",
        name);
  seen_[position] = Seen::gradient;
  if (counts_at_once(position))
    count(position);
}

// Where units come and go, a parameter of several counts when the last of their calls has ended
// (unit_calls.h).
bool BucketEngine::counts_at_once(int position) const {
  const Variable& parameter = space_.parameter(position).parameter;
  return !units_part_ || map_.find(parameter)->users.size() == 1;
}

void BucketEngine::count(int position) {
  const Placed& placed = space_.parameter(position);
  Seen& seen = seen_[position];
  if (seen == Seen::counted)
    return;
  if (seen == Seen::nothing || weight_ == 0)
    fill_(placed.parameter.gradient_buffer(), 0);
  seen = Seen::counted;
  --missing_[placed.bucket];
  while (next_bucket_ < std::ssize(missing_) && missing_[next_bucket_] == 0)
    add(next_bucket_++);
}

// ---- a full bucket

void BucketEngine::add(int b) {
  const Tensor sum = sums_->add(space_.bucket(b), gradients_part_->open(b), micro_step_);
  if (sums_->crosses_after(micro_step_))
    flush(b, sum);
  else
    gradients_part_->release(b);
}

void BucketEngine::flush(int b, const Tensor& sum) {
  const Tensor gradient = to_communicate(sum, b);
  UnderWay bucket{b, {}};
  for (int m = 0; m < std::ssize(space_.bucket(b).messages); ++m)
    bucket.works.push_back(send(message_of(b, m, gradient)));
  under_way_.push_back(std::move(bucket));
  if (!options_.overlap)
    synchronize_gradients(0);
}

// The gradient in the dtype of communication: itself, or a copy in its bucket's buffer or in one
// that lasts until it has crossed.
Tensor BucketEngine::to_communicate(const Tensor& gradient, int b) {
  const DType dtype = layout_.communication();
  if (gradient.dtype() == dtype)
    return gradient;
  const Tensor buffer = gradients_part_->open(b);
  if (buffer.dtype() == dtype) {
    copy_(buffer, gradient);
    return buffer;
  }
  synchronize_gradients(1);
  CategoryScope scope(Category::buckets);
  return cast(gradient, dtype);
}

GradientMessage BucketEngine::message_of(int b, int m, const Tensor& gradient) {
  const Bucket& bucket = space_.bucket(b);
  const Message& message = bucket.messages[m];
  const int64_t begin = message.begin - bucket.begin;
  const std::string& first = space_.at(message.begin).parameter.name();
  const char* engine = name_of(options_.engine);
  return {{fmt::format("{}.gradient.{}.{} from {}", engine, b, m, first), Phase::step},
          message.shards,
          message.begin,
          message.end,
          gradient.slice(0, begin, begin + message.size()),
          sums_->arrival(message, micro_step_),
          mean_reduction()};
}

void BucketEngine::synchronize_gradients(size_t under_way) {
  for (; under_way_.size() > under_way; under_way_.pop_front())
    synchronize(under_way_.front());
}

void BucketEngine::synchronize(const UnderWay& bucket) {
  const std::vector<Message>& messages = space_.bucket(bucket.bucket).messages;
  for (size_t m = 0; m < messages.size(); ++m) {
    Work work = bucket.works[m];
    work.wait();
    if (const auto found = work.nonfinite(); found && !mine_.nonfinite)
      mine_.nonfinite = NonFinite{found->rank, messages[m].begin + found->offset};
  }
  gradients_part_->release(bucket.bucket);
  sums_->arrived(bucket.bucket, micro_step_);
}

// ---- the end

StepResult BucketEngine::step() {
  check_usable("step");
  check(turn_ == Turn::backward_done, "step: call forward and backward first");
  const trace::Span span("step");
  return attempt([&] {
    turn_ = Turn::idle;
    if (last_micro_step())
      return end_step();
    ++micro_step_;
    return StepResult();
  });
}

void BucketEngine::synchronize() {
  check_alive("synchronize");
  parameters_part_->wait();
}

}  // namespace sg::dist

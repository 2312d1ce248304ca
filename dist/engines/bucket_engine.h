// What the engines with buckets share: a step's course, from the loss's scale to the update. An
// engine says where a bucket's gradient is written, how it crosses, and which part of it this rank
// owns.
//
//   forward, backward: gradients are written into buckets; a full bucket leaves, strictly in bucket
//   order step:              the last of k micro-steps settles what is under way, takes the norm,
//   updates, publishes parameters
#pragma once
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "dist/engine.h"
#include "dist/engines/flat_space.h"
#include "dist/engines/gradient_norm.h"
#include "dist/engines/micro_step_sum.h"
#include "dist/engines/out_of_memory.h"
#include "dist/engines/sharded_optimizer.h"
#include "dist/engines/step_report.h"
#include "optim/loss_scaler.h"

namespace sg::dist {

class BucketEngine : public Engine, private LeafKeeper {
 public:
  ~BucketEngine() override;

  Variable forward(const std::function<Variable()>& loss,
                   const std::optional<Targets>& targets) final;
  void backward(const Variable& loss) final;
  StepResult step() final;
  void set_learning_rate(double lr) final { lr_ = optim::checked_learning_rate(lr); }
  void raise_flags(uint32_t flags) final { flags_ |= flags; }
  void synchronize() final {
    check_alive("synchronize");
    await_parameters();
  }
  void gather(std::span<const Variable> parameters, const std::function<void()>& use) final;
  int64_t steps() const final { return step_; }
  std::vector<StateEntry> state() final;
  std::string scalars() const final;
  void restore(const std::string& scalars) final;
  void check_whole() const final { check_usable("save"); }
  const Options& options() const final { return options_; }
  Comm& comm() final { return comm_; }

  // Second half of construction, when the engine's own part exists: allocates, takes parameters
  // over one by one with rank 0's values, watches gradients.
  void start();

 protected:
  // The part of a message that this rank updates.
  struct Owned {
    int bucket = 0;
    int64_t begin = 0, end = 0;  // in the flat space; not empty
    MicroStepSum
        gradient;  // (end − begin) what crosses arrives there and adds up over the micro-steps
  };

  BucketEngine(std::vector<Unit> units, const Options& options, Comm& comm);

  // ---- what an engine decides
  // Its memory: parameters and gradients, as far as they stay; called once, when it is known what
  // this rank updates.
  virtual void allocate(const std::vector<Owned>& parts) = 0;
  // Points a trainable parameter's variable there; `value`, dense f32, is its initial value.
  virtual void place(const Placed& parameter, const Tensor& value) = 0;
  virtual Tensor parameters_of(
      const Owned& part) = 0;  // where the part's parameters lie, one-dimensional
  // Where the mean of the part's gradient arrives, likewise, in mean_dtype(). Not asked for with
  // elastic determinism: f32 sums arrive in memory of their own.
  virtual Tensor mean_of(const Owned& part) = 0;

  // The bucket's gradient of this micro-step, one-dimensional in the parameters' dtype: asked for
  // when its first contribution arrives, and again until it is closed. Contents undefined at first.
  virtual Tensor open(int bucket) = 0;
  virtual void close(int bucket) { (void)bucket; }  // what it held has left

  // Who updates what of a message. One rank in the answer: everybody updates everything.
  virtual Shards owners(const Message& message) const { return message.shards; }
  // Sends a message of a bucket on its way. `gradient`: the message's range, in crossing_dtype(),
  // which may be changed. The mean of what this rank owns of it arrives in `mean`, of mean_dtype().
  virtual Work reduce(const Call& call,
                      const Message& message,
                      const Tensor& gradient,
                      const Tensor& mean) = 0;
  virtual void begin_micro_step() {}
  virtual void end_micro_step() {}    // also where an exception ends it; must not throw
  virtual void publish() {}           // after an update: parameters go where they are needed
  virtual void await_parameters() {}  // until they are there
  // Parameters are whole here from hold() to let_go().
  virtual void hold(std::span<const Variable> parameters) { (void)parameters; }
  virtual void let_go(std::span<const Variable> parameters) { (void)parameters; }
  // A trainable parameter is about to be read: it is there on return, or an error says why not.
  virtual void before_use(int position) = 0;
  // The end: leaves the trainable parameters with values of their own. False where they can't be
  // had: a peer is lost, or (`alone`) doesn't take part since this rank alone is ending.
  virtual bool give_back(bool alone) = 0;
  // For every engine's destructor, while it is still whole; later calls do nothing.
  void retire() noexcept;

  // Whether peers' backward waits for calls that this rank makes in its own.
  virtual bool communicates_in_backward() const { return false; }
  // Whether a parameter's gradient counts as soon as it is complete, or only when the engine says
  // so by count().
  virtual bool counts_at_once(int position) const {
    (void)position;
    return true;
  }
  // The parameter's gradient of this micro-step is what has arrived, or zero; nothing where it has
  // counted already.
  void count(int position);
  // The bucket's parameters forget their gradients, views of it that would keep its memory.
  void drop_gradients(int bucket);
  // Waits until at most so many buckets are under way.
  void limit_in_flight(size_t buckets);
  // How gradients cross: their mean over the ranks, which the loss was divided for already or the
  // sum is multiplied for (numerics, rules 2 and 3). With elastic determinism f32 sums arrive.
  Reduction mean_reduction() const {
    const double scale = divides_at_loss() ? 1 : options_.predivide / comm_.size();
    return {.scale = static_cast<float>(scale), .algorithm = options_.reduction};
  }
  bool divides_at_loss() const {
    return options_.elastic_determinism || options_.prescale_gradients;
  }
  DType crossing_dtype() const { return options_.communication.value_or(options_.precision); }
  DType mean_dtype() const { return options_.elastic_determinism ? DType::f32 : crossing_dtype(); }
  static int64_t owned_size(const std::vector<Owned>& parts) {
    int64_t size = 0;
    for (const Owned& part : parts)
      size += part.end - part.begin;
    return size;
  }
  bool in_backward() const { return in_backward_; }
  bool last_micro_step() const { return micro_step_ + 1 == options_.micro_steps; }
  bool ranks_first() const { return options_.accumulation == Accumulation::ranks_first; }

  std::vector<Unit> units_;
  Options options_;
  Comm& comm_;
  std::vector<Variable> frozen_;
  FlatSpace space_;

 private:
  struct Pending {
    int bucket;
    std::vector<Work> works;  // one per message
  };

  // Runs a part of a step: whatever it throws drops the step (engine.h).
  template <class Part>
  auto attempt(Part&& part) {
    struct Running {
      bool& on;
      ~Running() { on = false; }
    } running{running_ = true};
    try {
      return part();
    } catch (const OutOfMemory& e) {
      drop_step();
      throw explained(e, options_, comm_, space_.size());
    } catch (...) {
      drop_step();
      throw;
    }
  }
  void check_alive(const char* caller) const;   // its group, and its units are its own
  void check_usable(const char* caller) const;  // and its parameters are of one step
  void drop_step() noexcept;
  void begin_gradients();
  void rejoin();
  void check_leaves(std::span<const Variable> reached) const;
  void before_read(const Variable& leaf, int number) final;
  void hand_over() final;

  void own_parts();
  void make_sums();
  void take_over(const Placed& parameter);
  void take_back(const Variable& parameter);
  // Calls with this rank's masters of a parameter, run by run: (end − begin) f32, elements [begin,
  // end) of it.
  void for_owned(
      const Placed& parameter,
      const std::function<void(const Tensor& master, int64_t begin, int64_t end)>& visit);
  void place_frozen();
  void watch();
  Tensor gradient_of(int position);
  void arrived(int position);
  void leave(int bucket);
  Tensor crossing(const Tensor& gradient, const Tensor& buffer);
  void settle(const Pending& pending);
  StepResult end_step();
  std::vector<StepReport> exchange(const std::vector<Tensor>& gradients);
  void look_alone(const std::vector<Tensor>& gradients);
  // more: what gradients are multiplied by since not every position has a target (weight_factor).
  StepResult judge(const std::vector<StepReport>& reports, double more);
  std::string nonfinite_cause(const std::vector<StepReport>& reports,
                              std::span<const double> sums) const;
  void weigh(const std::optional<Targets>& targets);
  double seed() const;

  double lr_;
  std::optional<optim::LossScaler> scaler_;
  std::unique_ptr<GradientNorm> norm_;
  std::unique_ptr<ShardedOptimizer> optimizer_;
  std::vector<Owned> owned_;
  Tensor accumulated_;           // local first and k > 1: (φ) f32
  std::vector<uint64_t> hooks_;  // on_gradient ids, by position
  const int exceptions_ = std::uncaught_exceptions();
  bool running_ = false;  // a part of a step
  bool retired_ = false;
  std::string lost_;  // why no call of the group can succeed any more
  std::string torn_;  // how an update failed half-way

  // ---- the step under way
  int micro_step_ = 0;
  int64_t step_ = 0;
  enum class Progress : uint8_t { idle, forward_done, backward_done } phase_ = Progress::idle;
  double scale_ = 1;             // that multiplied this micro-step's loss
  double weight_ = 1;            // this micro-batch's targets over its positions
  int64_t positions_ = 0;        // that weights are over; 0 where none was given
  std::vector<float> losses_;    // of this rank's micro-steps
  std::vector<double> weights_;  // likewise
  std::vector<int> missing_;     // by bucket: parameters whose gradient hasn't arrived
  enum class Seen : uint8_t { nothing, gradient, counted };
  std::vector<Seen> seen_;  // by position
  bool in_backward_ = false;
  int next_bucket_ = 0;  // leaves next
  std::deque<Pending> pending_;
  std::optional<NonFinite> nonfinite_;  // offset in the flat space
  uint32_t flags_ = 0;
  int failures_ = 0;  // that dropped the step since ranks agreed on it last
};

}  // namespace sg::dist

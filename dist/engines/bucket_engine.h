// What the engines share: a step's course, from the loss's scale to the update. An engine is two
// parts, where parameters lie and where gradients lie, and says how a bucket's gradient crosses
// between the ranks and what follows the update.
//
//   forward   closure, loss
//   backward  gradients are written into buckets; a full bucket is added up and flushed, strictly
//             in bucket order, and travels while the pass goes on
//   step      the last of k micro-steps synchronizes what is under way, takes the norm, updates
#pragma once
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "dist/engine.h"
#include "dist/engines/gradient_norm.h"
#include "dist/engines/gradient_sums.h"
#include "dist/engines/gradients.h"
#include "dist/engines/out_of_memory.h"
#include "dist/engines/parameters.h"
#include "dist/engines/sharded_optimizer.h"
#include "dist/engines/step_report.h"
#include "dist/engines/unit_gatherer.h"
#include "optim/loss_scaler.h"

namespace sg::dist {

// A message of a bucket on its way.
struct GradientMessage {
  Call call;
  const Shards& shards;        // who updates which part of it
  int64_t begin = 0, end = 0;  // in the flat space
  Tensor gradient;             // (end − begin) in the dtype of communication; may be changed
  Tensor mean;                 // where the mean of this rank's shard arrives
  Reduction reduction;         // how contributions become the mean
};

class BucketEngine : public Engine, private LeafKeeper {
 public:
  ~BucketEngine() override;

  Variable forward(const std::function<Variable()>& loss,
                   const std::optional<Targets>& targets) final;
  void backward(const Variable& loss) final;
  StepResult step() final;
  void set_learning_rate(double lr) final { lr_ = optim::checked_learning_rate(lr); }
  void raise_flags(uint32_t flags) final { mine_.flags |= flags; }
  void synchronize() final;
  void gather(std::span<const Variable> parameters, const std::function<void()>& use) final;
  int64_t steps() const final { return step_; }
  std::vector<StateEntry> state() final;
  std::string scalars() const final;
  void restore(const std::string& scalars) final;
  void check_whole() const final { check_usable("save"); }
  const Options& options() const final { return options_; }
  Comm& comm() final { return comm_; }

  // Second half of construction, when the engine has its parts: takes parameters over one by one
  // with rank 0's values, watches gradients.
  void start();

 protected:
  BucketEngine(std::vector<Unit> units, const Options& options, Comm& comm, Updater updater);

  // Makes one of the engine's two parts, which then lives as long as the engine.
  template <class Part, class... Arguments>
  Part& hold(Arguments&&... arguments) {
    auto part = std::make_unique<Part>(layout_, std::forward<Arguments>(arguments)...);
    Part& held = *part;
    if constexpr (std::is_base_of_v<UnitGatherer, Part>)
      units_part_ = part.get();
    keep(std::move(part));
    return held;
  }

  // Sends a message on its way.
  virtual Work send(const GradientMessage& message) = 0;
  // Parameters go from who has updated them to where they are needed.
  virtual void after_update() {}

  // Waits until at most so many buckets are under way.
  void synchronize_gradients(size_t under_way);
  // The parameter's gradient of this micro-step is what has arrived, or zero; nothing where it has
  // counted already.
  void count(int position);

  const std::vector<Unit> units_;
  const Options options_;
  Comm& comm_;
  const UnitMap map_;
  const FlatSpace space_;
  const std::vector<Shard> shards_;  // what this rank updates

 private:
  struct UnderWay {
    int bucket;
    std::vector<Work> works;  // one per message
  };

  void keep(std::unique_ptr<Parameters> part) { parameters_part_ = std::move(part); }
  void keep(std::unique_ptr<Gradients> part) { gradients_part_ = std::move(part); }

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
      throw explain(e, options_, comm_, space_.size());
    } catch (...) {
      drop_step();
      throw;
    }
  }
  void check_alive(const char* caller) const;   // its group, and its units are its own
  void check_usable(const char* caller) const;  // and its parameters are of one step
  void check_between_steps(const char* caller, const char* remedy) const;
  void drop_step() noexcept;
  void rejoin();
  void before_read(const Variable& leaf, int number) final;
  void hand_over() final;
  void retire() noexcept;

  // ---- start
  void make_optimizer();
  void take_over(const Placed& parameter);
  void take_over_frozen();
  void watch_gradients();

  // ---- a micro-step
  double seed() const;
  bool divides_at_loss() const;
  Reduction mean_reduction() const;
  bool last_micro_step() const { return micro_step_ + 1 == options_.micro_steps; }
  bool counts_at_once(int position) const;
  void check_leaves(std::span<const Variable> reached) const;
  void begin_gradients();
  Tensor gradient_of(int position);
  void arrived(int position);
  void add(int bucket);
  void flush(int bucket, const Tensor& gradient);
  GradientMessage message_of(int bucket, int message, const Tensor& gradient);
  Tensor to_communicate(const Tensor& gradient, int bucket);
  void synchronize(const UnderWay& bucket);

  // ---- the end of a step
  StepResult end_step();
  std::vector<RankReport> exchange(const std::vector<Tensor>& gradients);
  void note_nonfinite(const std::vector<Tensor>& gradients);
  // more: what gradients are multiplied by since not every position has a target (weight_factor).
  StepResult judge(const std::vector<RankReport>& reports, double more);
  std::vector<double> parameter_sums(const std::vector<RankReport>& reports) const;
  std::string nonfinite_cause(const std::vector<RankReport>& reports,
                              std::span<const double> sums) const;
  void take_back(const Variable& parameter);

  std::vector<Event> updated_;  // by bucket
  const EngineLayout layout_{units_, map_, options_, comm_, space_, shards_, updated_};
  std::optional<CopyStream> copies_;  // where the optimizer's state is offloaded
  std::vector<Variable> frozen_;
  std::unique_ptr<Parameters> parameters_part_;
  std::unique_ptr<Gradients> gradients_part_;
  UnitGatherer* units_part_ = nullptr;  // the parameters, where units come and go
  std::optional<GradientSums> sums_;
  std::optional<GradientNorm> norm_;  // none in a simulated run, which has no values
  std::optional<ShardedOptimizer> optimizer_;
  std::optional<optim::LossScaler> scaler_;
  double lr_;
  std::vector<uint64_t> hooks_;  // on_gradient ids, by position
  const int exceptions_ = std::uncaught_exceptions();
  bool running_ = false;  // a part of a step
  bool retired_ = false;
  std::string lost_;  // why no call of the group can succeed any more
  std::string torn_;  // how an update failed half-way
  int failures_ = 0;  // that dropped the step since ranks agreed on it last

  // ---- the step under way
  enum class Turn : uint8_t { idle, forward_done, backward_done } turn_ = Turn::idle;
  enum class Seen : uint8_t { nothing, gradient, counted };
  int64_t step_ = 0;
  int micro_step_ = 0;
  double scale_ = 1;          // that multiplied this micro-step's loss
  double weight_ = 1;         // this micro-batch's targets over its positions
  RankReport mine_;           // what this rank will tell the others
  std::vector<Seen> seen_;    // by position
  std::vector<int> missing_;  // by bucket: parameters whose gradient hasn't counted
  int next_bucket_ = 0;       // to be added
  bool in_backward_ = false;
  std::deque<UnderWay> under_way_;
};

}  // namespace sg::dist

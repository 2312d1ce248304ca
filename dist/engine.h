// An engine trains a model on the ranks of a group: it owns gradients, optimizer state and, where
// it shards them, parameters. Which engine it is never changes a bit of the result (numerics:
// Options).
//
//   const Options options{.engine = EngineKind::ddp, .lr = 1e-3, .micro_steps = 2};
//   auto engine = dist::initialize(model.units(), options, comm);
//   for each micro-batch:
//     Variable loss = engine->forward([&] { return model.loss(batch.tokens, batch.targets); });
//     engine->backward(loss);
//     StepResult result = engine->step();  // updates after every micro_steps-th call
//   engine->save("out");                   // goes on from there: engine->load("out")
//
// Positions without a target: a step follows the mean over all its targets, wherever they lie.
// Where some of a micro-batch's targets are −1, forward is told how many there are, of the run's
// micro-batch × context:
//     engine->forward(loss, {.count = count_targets(batch.targets), .of = micro_batch * context});
//
// What fails: an exception out of forward, backward or step drops the whole optimizer step, whether
// the closure, a hook, an op, the memory's end or a number that isn't finite was its cause. The
// engine has then waited for what was under way, released what it had gathered, and forgotten the
// step's losses and gradients; steps() is unchanged, and the next forward is micro-step 0 of the
// same step, with the data that the caller gives it (flags stay raised).
//  - All ranks failed alike: they go on together, with the bits of a run in which nothing failed.
//  - Only some failed: the calls that they make next differ from their peers', so that all ranks
//    are told by name, within the group's time-out, and the engine refuses every later call, as it
//    does where a peer is lost.
//  - An update failed half-way: only load() is left. After any other failure load() works too.
//  - A call out of turn (backward or step twice, or without what comes before) is refused and
//    changes nothing. forward may be called again before backward: the one before counts as not
//    made.
//
// Parameters may be read anywhere, within calls of their units and outside of them: reading waits
// for their values. zero3 gathers a unit that is used outside of its calls until the micro-step's
// end; between steps it refuses that by name. What is trained was settled at initialize:
// set_requires_grad on an engine's parameter is refused.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "autograd/hooks.h"
#include "dist/comm/comm.h"
#include "dist/options.h"

namespace sg::dist {

// What a micro-batch weighs: count ÷ of (numerics, rule 2).
struct Targets {
  int64_t count = 0;  // positions of this rank's micro-batch that have a target
  int64_t of = 0;  // the run's micro-batch × context, the same in all micro-batches of all ranks
};

struct StepResult {
  bool complete = false;  // this call ended an optimizer step; the rest is set only then
  bool applied = false;   // parameters changed
  float loss = 0;         // mean over the step's targets of all ranks (numerics, rule 11)
  double norm = 0;        // global gradient norm, unclipped
  double loss_scale = 1;  // that multiplied this step's loss
  std::string skipped;    // why nothing changed
  uint32_t flags = 0;     // all that some rank raised
};

// A run of one parameter's state, as checkpoints hold it: of its optimizer state, or of its value
// where it is frozen.
struct StateEntry {
  std::string parameter;       // its name
  std::string kind;            // "master", "moment1", "moment2", "momentum"; "frozen"
  Shape shape;                 // the parameter's
  int64_t begin = 0, end = 0;  // which of its elements
  Tensor values;  // (end − begin), a view of the engine's memory: f32; frozen: of the parameter's
                  // dtype
  bool shared = false;  // every rank holds this very run; otherwise this rank alone
};

class CheckpointReader;  // checkpoint.h

class Engine {
 public:
  virtual ~Engine() = default;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Runs the closure, which returns one f32 value: the mean loss over the targets of this rank's
  // micro-batch. An op that computes gradients in forward may write them into the engine's memory.
  // Without `targets` every position has one. Usage error between backward and step; where the
  // closure's losses met targets of −1 and `targets` isn't given; where its only loss counted
  // others than `targets` says.
  virtual Variable forward(const std::function<Variable()>& loss,
                           const std::optional<Targets>& targets = {}) = 0;
  // Gradients of loss · scale · weight / micro_steps; communication starts while it runs. A
  // micro-batch without targets runs nothing (zero3 among several ranks: its units' calls, with
  // zeros) and counts as zeros. Usage error unless forward came before.
  virtual void backward(const Variable& loss) = 0;
  // Error numeric: a loss or gradient that isn't finite under OnNonFinite::stop, or an overflow at
  // the smallest loss scale; it names step, rank, micro-batch or parameter. A step without any
  // target is one too. Parameters are unchanged then.
  virtual StepResult step() = 0;

  virtual void set_learning_rate(double lr) = 0;
  // Bits of the caller's choice, which show in StepResult::flags on every rank at the end of this
  // step.
  virtual void raise_flags(uint32_t flags) = 0;
  virtual void synchronize() = 0;  // everything under way has arrived: parameters are the last
                                   // step's, also for eval and save

  // Runs `use` with these parameters whole on every rank, to be read. What rank 0 changes in them
  // is everybody's value afterwards, shards and masters too; elements that it leaves alone keep
  // their unrounded masters, and what other ranks change is lost. Collective, between steps. Usage
  // error for a parameter that isn't the engine's.
  virtual void gather(std::span<const Variable> parameters, const std::function<void()>& use) = 0;

  // Saves everything that the engine goes on from as folder/tag ("step-000012" unless given), by
  // the protocol of checkpoint.h; the data's position and the schedule are the program's.
  // Collective, between steps.
  void save(const std::string& folder, const std::string& tag = {});
  // The reverse, exactly, whatever engine, partition and number of ranks saved it; without a tag
  // the newest. Collective. Errors, on all ranks: bad_input, also where it isn't this model's and
  // optimizer's; nothing has changed then.
  void load(const std::string& folder, const std::string& tag = {});
  void load(const CheckpointReader& checkpoint);

  virtual int64_t steps()
      const = 0;  // ended since the run began, skipped ones too: where the data goes on

  // What this rank holds of the model's state, in registration order, frozen parameters last, and
  // the numbers beside it (JSON: t, steps, learning rate, loss scale). Usage error within a step.
  virtual std::vector<StateEntry> state() = 0;
  virtual std::string scalars() const = 0;
  // Writes into state()'s tensors came before: parameters follow from the masters. Restores the
  // numbers.
  virtual void restore(const std::string& scalars) = 0;

  virtual void check_whole() const = 0;  // errors where there is nothing that could be saved

  virtual const Options& options() const = 0;
  virtual Comm& comm() = 0;

 protected:
  Engine() = default;
};

// Takes over the units' parameters: casts them to the options' precision, gives every rank rank 0's
// values, and points them into the engine's memory. The units' hooks and gradient buffers are the
// engine's until its end. Errors: usage for options that contradict each other or the group.
//
// An engine ends when it is destroyed, or when another one is initialized over some of its
// parameters; then it refuses every call. It waits for what is under way and returns every byte.
// The model can be run and initialized again: its parameters have their last values, in the
// engine's precision (zero3: each rank gets all of them, so that ending is collective). Where some
// rank has no room for them, a peer is lost, or an exception is ending this rank alone, they lie on
// meta, and reading one is an error that says what to do.
std::unique_ptr<Engine> initialize(std::vector<Unit> units, const Options& options, Comm& comm);

}  // namespace sg::dist

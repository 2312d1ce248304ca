// The training loop that every program and every engine runs in, once per rank.
#pragma once
#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "core/copies.h"
#include "dist/checkpoint/checkpoint.h"
#include "dist/plan.h"
#include "models/data/data.h"
#include "models/data/feed.h"
#include "models/run/commands.h"
#include "models/run/initial_weights.h"
#include "models/run/progress.h"
#include "models/run/receipt.h"
#include "models/run/saved_run.h"

namespace sg::models {

// Takes the sizes of --init-from, where that is given; a resume those of its checkpoint.
// Collective.
void take_sizes(const Family& family, TrainOptions& options, dist::Comm& comm);
// Opens what the options name and fills in the sizes that the data decides.
Dataset open_data(const Family& family, TrainOptions& options);

class Trainer {
 public:
  // Agrees with the other ranks on all that decides bits, builds the model and its engine, and
  // takes up the checkpoint that the options ask for. Errors: usage, bad_input (data, checkpoint),
  // peer (ranks that differ).
  Trainer(const Family& family, const TrainOptions& options, Dataset data, dist::Comm& comm);

  // Trains to the last step; false: a signal asked to stop before, and what there is has been
  // saved.
  bool run();
  Json receipt();  // collective, the same on every rank

  LanguageModel& model() { return *model_; }
  PlanOptions dry_run() const;                              // what a plan of this run is asked for
  const TrainOptions& options() const { return options_; }  // batch sizes settled
  double median_step_seconds() const { return 1e-3 * record_.median_step_ms; }

 private:
  struct Given {  // that a resume would otherwise take from the run that it goes on with
    bool batch = false;
    bool warmup = false;
  };
  void settle_batch();
  void settle_schedule();
  void open_weights();
  void identify();
  void adopt(const dist::CheckpointReader& checkpoint, const Given& given);
  void restore(const dist::CheckpointReader& checkpoint);
  std::map<std::string, std::string> agreement() const;
  void choose();
  void introduce();
  bool train();
  bool traces() const {
    return !options_.trace.empty() && comm_.rank() == 0;
  }  // one rank writes the file of all
  dist::StepResult step(Feed& feed);
  void report(const dist::StepResult& result, double lr, double seconds);
  void check_data() const;
  void check_room() const;
  bool save_is_due() const;
  void validate();
  dist::Checkpoint checkpoint();
  void save();
  void poll_save();
  void finish_save();
  void finish_save_quietly();  // after an error, which is the one to report
  bool due(int64_t every) const { return every > 0 && steps_done() % every == 0; }
  int64_t steps_done() const { return static_cast<int64_t>(record_.losses.size()); }

  const Family& family_;
  TrainOptions options_;
  const Dataset data_;
  dist::Comm& comm_;
  RunIdentity identity_;
  RunRecord record_;
  std::unique_ptr<InitialWeights> weights_;  // until the engine has them; rank 0's
  std::string initial_hash_;                 // theirs; empty: the run began with random values
  std::vector<dist::Rung> rungs_;            // engine auto: what it tried
  std::vector<std::string> accepted_;  // changes of the numerics that a resume was told to accept
  std::unique_ptr<LanguageModel> model_;
  std::unique_ptr<dist::Engine> engine_;
  std::unique_ptr<Progress> progress_;
  std::string run_;  // which run this is, for its checkpoints
  std::chrono::steady_clock::time_point saved_at_ =
      std::chrono::steady_clock::now();            // the last time
  SaveReport save_;                                // the last save, or the one under way
  std::unique_ptr<dist::AsyncSaver> saver_;        // null: saves aren't made beside training
  std::vector<double> seconds_;                    // by step of this process
  double busy_seconds_ = 0, exposed_seconds_ = 0;  // of communication in those steps
  double recompute_seconds_ = 0;                   // in those steps
  Copies copies_;                                  // likewise
};

}  // namespace sg::models

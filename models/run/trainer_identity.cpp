// What a run is and what it keeps: numerics, checkpoints.
#include <chrono>

#include "core/device.h"
#include "dist/checkpoint/ranks.h"
#include "dist/numerics_rules.h"
#include "models/run/trainer.h"
#include "models/run/version.h"

namespace sg::models {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// The rows that decide one of these, as text.
template <class Rows, class Owner>
void add_texts(const Rows& rows,
               const Owner& owner,
               dist::Decides decides,
               std::map<std::string, std::string>& texts) {
  for (const auto& row : rows) {
    if (row.decides == decides)
      texts[row.name] = dist::text_of(row, owner);
  }
}

}  // namespace

void take_sizes(const Family& family, TrainOptions& options, dist::Comm& comm) {
  if (options.init_from.empty())
    return;
  const auto found = dist::run_file_work_on_all(dist::ranks_of(comm), [&] {
    SavedRun run;
    if (comm.rank() == 0)
      run.size = size_in(family, options.resume ? options.out : options.init_from);
    return comm.rank() == 0 ? run.text() : std::string();
  });
  const float dropout = options.size.dropout;  // training's own
  options.size = SavedRun::parse(found[0], options.init_from).size;
  options.size.dropout = dropout;
}

// Rank 0 reads them, and all ranks learn whether it could. A resume takes the checkpoint's values.
void Trainer::open_weights() {
  if (options_.init_from.empty() || options_.resume)
    return;
  const auto hashes = dist::run_file_work_on_all(dist::ranks_of(comm_), [&] {
    if (comm_.rank() != 0)
      return std::string();
    weights_ = InitialWeights::open(family_, options_.init_from);
    return weights_->hash();
  });
  initial_hash_ = hashes[0];
}

void Trainer::identify() {
  const SizeOptions& size = options_.size;
  const dist::Options& engine = options_.engine;
  identity_.model = family_.name + " " + size.size;
  identity_.engine = dist::name_of(engine.engine);
  identity_.precision = dist::precision_name(engine.precision);
  identity_.sizes = {{"layers", *size.layers},
                     {"heads", *size.heads},
                     {"width", *size.width},
                     {"context", *size.context},
                     {"vocab", *size.vocab}};
  identity_.world = comm_.size();
  identity_.seed = options_.seed;
  identity_.steps = options_.steps;
  identity_.tokens_per_step = options_.batch.train * *size.context;
  auto& numerics = identity_.numerics;
  numerics.clear();
  numerics["rules"] = std::to_string(dist::numerics_rules);
  for (const auto& [name, value] : identity_.sizes)
    numerics[name] = std::to_string(value);
  numerics["model"] = identity_.model;
  numerics["dropout"] = fmt::format("{}", size.dropout);
  numerics["tied"] = size.tied ? "on" : "off";
  numerics["data"] = data_.fingerprint();
  if (!initial_hash_.empty())
    numerics["initial"] = initial_hash_;
  numerics["micro_batch"] = std::to_string(options_.batch.micro);
  add_texts(run_settings, options_, dist::Decides::bits, numerics);
  add_texts(data_settings, options_.data, dist::Decides::bits, numerics);
  numerics.merge(dist::numerics_of(engine, comm_.size()));
  numerics.merge(dist::numerics_of(options_.schedule));
  numerics["isa"] = kernel_table(comm_.device()).name;
  numerics["library"] = products_library(engine.precision);
}

// What ranks must have in common: what decides bits, and what decides which calls they make.
std::map<std::string, std::string> Trainer::agreement() const {
  auto fields = identity_.numerics;
  fields.merge(dist::fields_of(options_.engine));
  fields["version"] = version;
  add_texts(run_settings, options_, dist::Decides::calls, fields);
  fields["resume"] = options_.resume ? "on" : "off";
  fields["receipt"] = options_.receipt.empty() ? "none" : "written";  // its parts are gathered
  return fields;
}

// Before the engine is made: what the run began with that the command line leaves open, and refusal
// of what differs.
void Trainer::adopt(const dist::CheckpointReader& checkpoint, const Given& given) {
  check(ErrorKind::bad_input,
        checkpoint.engine() != "{}",
        "resume: {} holds weights that were imported, and no training; begin with --init-from {}",
        checkpoint.path(),
        options_.out);
  const Numerics saved = numerics_of(checkpoint);
  if (const auto initial = saved.find("initial"); initial != saved.end()) {
    initial_hash_ = initial->second;
    identity_.numerics["initial"] = initial_hash_;
  }
  check(ErrorKind::bad_input,
        options_.init_from.empty() || !initial_hash_.empty(),
        "resume: {} began with random values, not with those of --init-from {}",
        checkpoint.path(),
        options_.init_from);
  if (!given.warmup) {  // its default follows from a length that may differ
    options_.schedule.warmup = warmup_of(saved).value_or(options_.schedule.warmup);
    options_.schedule.validate();
    identify();
  }
  if (!given.batch && accepts_change(options_.accept_change, "world")) {
    options_.batch = {.train = global_batch_of(saved, checkpoint.path()),
                      .micro = options_.batch.micro};
    settle_batch();
    identify();
  }
  const auto order = saved.find("accumulation");
  if (options_.engine.accumulation == dist::Accumulation::automatic && order != saved.end()) {
    options_.engine.accumulation = dist::parse_word<dist::Accumulation>(order->second);
    identity_.numerics["accumulation"] = order->second;
  }
  accepted_ = check_numerics(saved, identity_.numerics, options_.accept_change, checkpoint.path());
}

void Trainer::restore(const dist::CheckpointReader& checkpoint) {
  const SavedRun saved = SavedRun::parse(checkpoint.state(), checkpoint.path());
  engine_->load(checkpoint);
  record_ = saved.record;
  check(ErrorKind::bad_input,
        steps_done() <= options_.steps,
        "resume: {} has done {} steps, --steps asks for {}",
        checkpoint.path(),
        steps_done(),
        options_.steps);
}

dist::Checkpoint Trainer::checkpoint() {
  const SavedRun run{.family = family_.name,
                     .size = options_.size,
                     .tokenizer = data_.tokenizer().to_json(),
                     .seed = options_.seed,
                     .steps = options_.steps,
                     .record = record_};
  dist::Checkpoint checkpoint = dist::checkpoint_of(*engine_);
  checkpoint.numerics = Json(identity_.numerics).dump();
  checkpoint.state = run.text();
  checkpoint.run = run_;
  return checkpoint;
}

void Trainer::save() {
  if (options_.out.empty())
    return;
  finish_save();  // one at a time
  const Clock::time_point begin = Clock::now();
  save_ = {.step = steps_done()};
  if (saver_)
    saver_->start(options_.out, checkpoint());
  else
    dist::save_checkpoint(options_.out, checkpoint(), dist::ranks_of(comm_));
  save_.stall_seconds = seconds_since(begin);
  saved_at_ = Clock::now();
  if (!saver_)
    progress_->saved(save_);
}

void Trainer::poll_save() {
  if (!saver_ || !saver_->under_way())
    return;
  const Clock::time_point begin = Clock::now();
  const bool over = saver_->poll();
  save_.stall_seconds += seconds_since(begin);
  if (over)
    progress_->saved(save_);
}

void Trainer::finish_save() {
  if (!saver_ || !saver_->under_way())
    return;
  const Clock::time_point begin = Clock::now();
  saver_->wait();
  save_.stall_seconds += seconds_since(begin);
  progress_->saved(save_);
}

void Trainer::finish_save_quietly() {
  try {
    finish_save();
  } catch (const Error& e) {
    progress_->note(e.what());
  }
}

}  // namespace sg::models

#include "models/run/trainer.h"

#include <chrono>
#include <filesystem>
#include <set>
#include <system_error>

#include "autograd/recompute.h"
#include "autograd/targets.h"
#include "core/copies.h"
#include "core/device.h"
#include "core/io/atomic_file.h"
#include "core/trace.h"
#include "dist/checkpoint/ranks.h"
#include "dist/config/config.h"
#include "dist/engines/facts.h"
#include "models/run/load.h"
#include "models/run/peak.h"
#include "models/run/plan.h"
#include "models/run/run_folder.h"
#include "models/run/signals.h"
#include "models/run/validation.h"
#include "nn/micro_step.h"

namespace sg::models {
namespace {

using Clock = std::chrono::steady_clock;

// What a rank tells the others with its losses.
constexpr uint32_t stop_asked = 1, save_busy = 2, save_due = 4;

// MFU is shown beside training, so measuring its peak may cost little time and little memory.
PeakOptions quick_peak(DType dtype) {
  return {dtype, 0.002, 1 << 22};
}

// What bits depend on: all of it, or what a reader doesn't know from the options and the line
// above.
std::string text_of(const std::map<std::string, std::string>& numerics, bool all) {
  std::string text;
  for (const auto& [name, value] : numerics) {
    const bool shown = all || name == "rules" || name == "seed" || name == "precision" ||
                       name == "isa" || name == "library" || name == "accumulation";
    if (shown)
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, value);
  }
  return text + (all ? "" : "; all of them: --verbose, or the receipt");
}

}  // namespace

Dataset open_data(const Family& family, TrainOptions& options) {
  SizeOptions limits = options.size;
  family.resolve(limits, DataOptions{}.vocabulary);
  options.data.vocabulary = *limits.vocab;
  Dataset data = open_dataset(options.data);
  family.resolve(options.size, data.vocabulary());
  check(data.vocabulary() <= *options.size.vocab,
        "train: the data has {} token ids, --vocab {} holds fewer",
        data.vocabulary(),
        *options.size.vocab);
  return data;
}

Trainer::Trainer(const Family& family, const TrainOptions& options, Dataset data, dist::Comm& comm)
    : family_(family), options_(options), data_(std::move(data)), comm_(comm) {
  trace::set_rank(comm_.rank());
  if (traces())
    trace::start(options_.trace);
  if (comm_.rank() == 0 && !options_.quiet)
    say_overrides(options_.overrides);
  pool(comm_.device()).reset_peaks();
  if (comm_.rank() == 0)
    pool(host).reset_peaks();  // nobody uses it before ranks agree on the run
  const bool batch_given = options_.batch.train > 0 || options_.batch.accumulation > 0;
  const bool warmup_given = options_.schedule.warmup != usual_warmup;
  settle_batch();
  check_data();
  open_weights();
  identify();
  std::optional<dist::CheckpointReader> checkpoint;
  comm_.agree({"train.start", dist::Phase::setup}, agreement());
  if (options_.resume)
    adopt(checkpoint.emplace(options_.out, "", dist::ranks_of(comm_)),
          {.batch = batch_given, .warmup = warmup_given});
  if (options_.engine.engine == dist::EngineKind::automatic)
    choose();
  model_ = build_on_meta(family_, options_.size, options_.seed);
  identity_.parameters = model_->parameter_count();
  std::vector<Unit> units = model_->units();
  if (weights_)
    units = begin_with(*weights_, std::move(units));
  engine_ = dist::initialize(std::move(units), options_.engine, comm_);
  weights_.reset();
  identity_.numerics["accumulation"] = dist::name_of(engine_->options().accumulation);
  if (checkpoint)
    restore(*checkpoint);
  run_ = checkpoint && !checkpoint->run().empty() ? checkpoint->run() : unique_suffix().substr(5);
  check_room();
  if (options_.overwrite && comm_.rank() == 0)
    remove_run(options_.out);
  progress_ = std::make_unique<Progress>(comm_.rank() == 0 && !options_.quiet,
                                         options_.steps,
                                         options_.print_every,
                                         identity_.tokens_per_step,
                                         options_.out,
                                         steps_done());
  if (options_.async_save && !options_.out.empty())
    saver_ = std::make_unique<dist::AsyncSaver>(engine_->state(), dist::ranks_of(comm_));
  introduce();
}

// Splits that are too short are refused now, not after all training.
void Trainer::check_data() const {
  data_.training_windows(*options_.size.context);
  if (data_.validation_size() > 0)
    data_.validation_batches(options_.batch.micro, *options_.size.context);
}

// A disk without room for one checkpoint is refused before anything is computed.
void Trainer::check_room() const {
  if (options_.out.empty())
    return;
  dist::run_on_all(dist::ranks_of(comm_), [&] {
    std::set<std::string> kinds;
    for (const dist::StateEntry& entry : engine_->state())
      kinds.insert(entry.kind);
    std::error_code unknown;
    const uint64_t room = std::filesystem::space(options_.out, unknown).available;
    const uint64_t needed =
        sizeof(float) * static_cast<uint64_t>(identity_.parameters) * kinds.size();
    check(ErrorKind::io,
          unknown || room >= needed,
          "--out {}: a checkpoint takes {}, the disk has {} left",
          options_.out,
          format_bytes(needed),
          format_bytes(room));
    return std::string();
  });
}

void Trainer::settle_batch() {
  const dist::BatchNames command_line{"--global-batch", "--micro-batch", "accumulation"}, file;
  options_.batch =
      dist::settle(options_.batch, comm_.size(), options_.config.empty() ? command_line : file);
  options_.engine.micro_steps = static_cast<int>(options_.batch.accumulation);
  options_.engine.lr = options_.schedule.lr;
  settle_schedule();
}

void Trainer::settle_schedule() {
  constexpr int64_t usual_steps = 100;
  optim::Schedule& schedule = options_.schedule;
  if (schedule.steps == 0)
    schedule.steps = options_.steps;
  const bool clamped = optim::depends_on_length(schedule.kind);
  if (schedule.warmup == usual_warmup)
    schedule.warmup = clamped ? std::min(usual_steps, schedule.steps) : usual_steps;
  check(schedule.decay == 0 || schedule.kind == optim::ScheduleKind::wsd,
        "--decay {} has no place in --schedule {}: wsd alone ends in a decay",
        schedule.decay,
        optim::name_of(schedule.kind));
  schedule.validate();
}

// The engine that fits. The order of accumulation is settled first: it is the run's, not the
// engine's.
void Trainer::choose() {
  dist::Options& engine = options_.engine;
  if (engine.accumulation == dist::Accumulation::automatic)
    engine.accumulation = dist::facts_of(engine.engine).order;
  rungs_ = dist::choose_engine(dry_model(family_, dry_run()), engine, comm_);
  engine.engine = rungs_.back().engine;
  identity_.engine = dist::name_of(engine.engine);
}

PlanOptions Trainer::dry_run() const {
  PlanOptions dry;
  dry.size = options_.size;
  dry.group = dist::dry_group(comm_);
  dry.engine = options_.engine;
  dry.batch.micro = options_.batch.micro;
  return dry;
}

void Trainer::introduce() {
  const double measured = static_cast<double>(identity_.parameters) * 1e-6;
  progress_->note(
      fmt::format("{} {}: {:.2f} million parameters, engine {} on {}, {} × {} tokens a step",
                  family_.name,
                  options_.size.size,
                  measured,
                  identity_.engine,
                  comm_.size() == 1 ? "one rank" : fmt::format("{} ranks", comm_.size()),
                  options_.batch.train,
                  *options_.size.context));
  for (const dist::Rung& rung : rungs_)
    progress_->note(text_of(rung));
  progress_->note("numerics: " + text_of(identity_.numerics, options_.verbose));
  if (is_16bit(options_.engine.precision))
    progress_->note(
        fmt::format("precision {}: products by {}; masters, moments and sums of gradients in f32",
                    identity_.precision,
                    products_library(options_.engine.precision)));
  for (const std::string& difference : accepted_)
    progress_->note(difference);
  if (!options_.init_from.empty() && !options_.resume)
    progress_->note(fmt::format("begins with the {} parameters of {}, dropout {}",
                                identity_.parameters,
                                options_.init_from,
                                options_.size.dropout));
  if (steps_done() > 0)
    progress_->note(fmt::format("resumed after step {}", steps_done()));
}

bool Trainer::run() {
  bool finished = false;
  try {
    finished = train();
  } catch (const Error& e) {
    // Every rank meets a number that isn't finite in the same step; the save under way is of an
    // earlier, good one.
    if (e.kind() == ErrorKind::numeric)
      finish_save_quietly();
    throw;
  }
  if (traces())
    trace::stop();
  return finished;
}

bool Trainer::train() {
  const BatchOptions batches{.size = options_.batch.micro,
                             .context = *options_.size.context,
                             .steps = static_cast<uint64_t>(options_.steps),
                             .seed = options_.seed,
                             .micro_batches = options_.engine.micro_steps,
                             .rank = comm_.rank(),
                             .world = comm_.size(),
                             .first_step = static_cast<uint64_t>(steps_done()),
                             .samples_before = static_cast<uint64_t>(record_.samples)};
  Feed feed(data_, batches, dist::facts_of(options_.engine.engine).one_reader, comm_);
  while (steps_done() < options_.steps) {
    const dist::StepResult result = step(feed);
    if (!(result.flags & save_busy))
      poll_save();
    const bool last = steps_done() == options_.steps, stopping = (result.flags & stop_asked) != 0;
    if (seconds_.size() == 1 && options_.show_mfu && comm_.rank() == 0)
      progress_->set_peak(
          options_.engine.micro_steps *
          measure_products(training_products(family_, options_.size, options_.batch.micro),
                           quick_peak(options_.engine.precision)));
    if (!last && due(options_.eval_every))
      validate();
    if (last)
      record_.median_step_ms = 1e3 * median(seconds_);
    if (last || stopping || due(options_.save_every) || (result.flags & save_due))
      save();
    if (last || stopping)
      finish_save();
    if (stopping && !last) {
      progress_->note(
          fmt::format("stopped after step {} as asked{}",
                      steps_done(),
                      options_.out.empty() ? "; without --out nothing is saved" : ", saved"));
      return false;
    }
  }
  // After the last save, so that nothing in here can lose it; a finished run that is resumed comes
  // here at once.
  if (record_.validation.empty() || record_.validation.back().step != steps_done())
    validate();
  return true;
}

// One clock for all ranks: they save after the same step.
bool Trainer::save_is_due() const {
  if (comm_.rank() != 0 || options_.out.empty() || options_.save_minutes == 0)
    return false;
  return std::chrono::duration<double>(Clock::now() - saved_at_).count() >=
         60 * options_.save_minutes;
}

dist::StepResult Trainer::step(Feed& feed) {
  const Clock::time_point begin = Clock::now();
  const double busy = comm_.traffic().busy_seconds(), exposed = comm_.traffic().exposed_seconds();
  const double recomputed = recompute_seconds();
  const Copies copied = copies(comm_.device());
  const double lr = options_.schedule.at(record_.applied);
  engine_->set_learning_rate(lr);
  if (stop_requested())
    engine_->raise_flags(stop_asked);
  if (save_is_due())
    engine_->raise_flags(save_due);
  if (saver_ && saver_->busy())
    engine_->raise_flags(save_busy);
  const int64_t positions = options_.batch.micro * *options_.size.context;
  dist::StepResult result;
  while (!result.complete) {
    const Batch batch = feed.next();
    nn::MicroStepScope scope(options_.seed, batch.step, batch.first_sample);
    const Variable loss =
        engine_->forward([&] { return model_->loss(batch.tokens, batch.targets); },
                         dist::Targets{count_targets(batch.targets), positions});
    engine_->backward(loss);
    result = engine_->step();
  }
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  busy_seconds_ += comm_.traffic().busy_seconds() - busy;
  exposed_seconds_ += comm_.traffic().exposed_seconds() - exposed;
  recompute_seconds_ += recompute_seconds() - recomputed;
  copies_ = copies_ + (copies(comm_.device()) - copied);
  seconds_.push_back(seconds);
  record_.losses.push_back(result.loss);
  record_.loss_scales.push_back(result.loss_scale);
  record_.skipped.push_back(result.skipped);
  record_.samples += options_.batch.train;
  if (result.applied)
    ++record_.applied;
  if (record_.first_step_ms == 0)
    record_.first_step_ms = 1e3 * seconds_since_start();
  progress_->step({.step = steps_done() - 1,
                   .loss = result.loss,
                   .lr = lr,
                   .norm = result.norm,
                   .seconds = seconds,
                   .memory = pool(comm_.device()).ledger().total_peak(),
                   .skipped = result.skipped});
  return result;
}

void Trainer::validate() {
  if (data_.validation_size() == 0)
    return;
  engine_->synchronize();
  const ValidationOptions options{.rows = options_.batch.micro, .batches = options_.eval_batches};
  record_.validation.push_back({steps_done(), validation_loss(*model_, data_, options, comm_)});
  progress_->validation(record_.validation.back());
}

Json Trainer::receipt() {
  engine_->synchronize();
  const auto steps = static_cast<double>(std::max<size_t>(1, seconds_.size()));
  Json receipt = make_receipt(identity_, record_);
  const Json memory = memory_of(comm_.device()), traffic = traffic_of(comm_.traffic().table());
  receipt["params_sha256"] = hash_masters(*engine_, model_->units());
  receipt["memory"] = gather_json(comm_, "receipt.memory", memory);
  receipt["traffic"] = gather_json(comm_, "receipt.traffic", traffic);
  receipt["comm_ms"] = 1e3 * busy_seconds_ / steps;
  receipt["exposed_comm_ms"] = 1e3 * exposed_seconds_ / steps;
  receipt["recompute_ms"] = 1e3 * recompute_seconds_ / steps;
  const bool offloads = options_.engine.offload_optimizer != dist::OffloadDevice::none;
  if (options_.engine.cpu_checkpointing || offloads) {
    receipt["exposed_copy_ms"] = 1e3 * copies_.exposed_seconds / steps;
    receipt["copies"] = gather_json(
        comm_, "receipt.copies", {{"to_host", copies_.to_host}, {"from_host", copies_.from_host}});
    receipt["host_memory"] = memory_of(host);
  }
  return receipt;
}

}  // namespace sg::models

// What an engine's checkpoints hold, and how it is saved and loaded.
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "core/io/json.h"
#include "core/ops.h"
#include "dist/checkpoint/checkpoint.h"
#include "dist/checkpoint/ranks.h"
#include "dist/engines/bucket_engine.h"

namespace sg::dist {
namespace {

using nlohmann::json;
using Arrays = std::set<std::pair<std::string, std::string>>;  // kind and parameter

// State is another thing under another one of these, even where its arrays look alike.
const std::set<std::string> kinds_of_state = {"optimizer", "precision"};

std::string arrays_text(std::span<const StateEntry> entries) {
  Arrays arrays;
  for (const StateEntry& e : entries)
    arrays.emplace(e.kind, e.parameter);
  return json(arrays).dump();
}

// What the checkpoint has, some rank takes: `held` is every rank's arrays_text.
void check_nothing_is_left(const CheckpointReader& checkpoint,
                           const std::vector<std::string>& held) {
  Arrays taken;
  for (const std::string& text : held)
    taken.merge(json::parse(text).get<Arrays>());
  for (const std::string& kind : checkpoint.kinds())
    for (const auto& [parameter, shape] : checkpoint.parameters(kind))
      check(ErrorKind::bad_input,
            taken.contains({kind, parameter}),
            "{}: holds a {} of {}, which has none here; is it another model's or optimizer's?",
            checkpoint.path(),
            kind,
            parameter);
}

// Text and numbers as restore() takes them: sizes and counts are whole and not negative, the rest
// is finite.
bool is_like(const json& value, const json& wanted) {
  if (wanted.is_number_integer())
    return value.is_number_unsigned() && value.get<uint64_t>() <= INT64_MAX;
  if (wanted.is_number())
    return value.is_number() && std::isfinite(value.get<double>());
  return value.type() == wanted.type();
}

// The same values lie beside the state: a loss scale or none. What kind of state it is, older
// checkpoints don't say.
void check_scalars(const json& saved, const json& wanted, const std::string& path) {
  for (const auto& [a, b, where] :
       {std::tuple(saved, wanted, "here"), std::tuple(wanted, saved, "there")})
    for (const auto& [name, value] : a.items())
      check(ErrorKind::bad_input,
            b.contains(name) || kinds_of_state.contains(name),
            "{}: there is no {} {}; is its precision another?",
            path,
            name,
            where);
  for (const auto& [name, value] : wanted.items()) {
    if (!saved.contains(name))
      continue;
    check(ErrorKind::bad_input,
          is_like(saved[name], value),
          "{}: {} {} can't be taken up: {} is of its kind",
          path,
          name,
          saved[name].dump(),
          value.dump());
    if (value.is_object())
      check_scalars(saved[name], value, path);
  }
}

// The rule for other frozen parameters: a run keeps those that it began with.
void check_frozen(const CheckpointReader& checkpoint, std::span<const StateEntry> entries) {
  const std::map<std::string, Shape> trained = checkpoint.parameters("master");
  const std::map<std::string, Shape> frozen = checkpoint.parameters("frozen");
  for (const StateEntry& e : entries) {
    const bool frozen_here = e.kind == "frozen";
    const bool differs = (frozen_here ? trained : frozen).contains(e.parameter);
    check(ErrorKind::bad_input,
          !differs || (!frozen_here && e.kind != "master"),
          "{}: {} is {} there and {} here; a run keeps what it froze: begin another with these "
          "weights (--init-from)",
          checkpoint.path(),
          e.parameter,
          frozen_here ? "trained" : "frozen",
          frozen_here ? "frozen" : "trained");
  }
}

// Last of all: what arrays and shapes tell says more.
void check_kinds_of_state(const json& saved, const json& wanted, const std::string& path) {
  for (const std::string& name : kinds_of_state)
    check(ErrorKind::bad_input,
          !saved.contains(name) || saved[name] == wanted[name],
          "{}: was saved with {} {}, this engine has {}; is it another model's or optimizer's?",
          path,
          name,
          saved[name].dump(),
          wanted[name].dump());
}

}  // namespace

Checkpoint checkpoint_of(Engine& engine, const std::string& tag) {
  engine.check_whole();
  return {.tag = tag.empty() ? fmt::format("step-{:06}", engine.steps()) : tag,
          .step = static_cast<uint64_t>(engine.steps()),
          .engine = engine.scalars(),
          .entries = engine.state()};
}

void Engine::save(const std::string& folder, const std::string& tag) {
  save_checkpoint(folder, checkpoint_of(*this, tag), ranks_of(comm()));
}

void Engine::load(const std::string& folder, const std::string& tag) {
  load(CheckpointReader(folder, tag, ranks_of(comm())));
}

void Engine::load(const CheckpointReader& checkpoint) {
  const CheckpointRanks ranks = ranks_of(comm());
  const std::vector<StateEntry> entries = state();
  const json saved = parse_json(checkpoint.engine(), checkpoint.path()),
             wanted = json::parse(scalars());
  check_scalars(saved, wanted, checkpoint.path());
  check_nothing_is_left(checkpoint, run_on_all(ranks, [&] {
                          check_frozen(checkpoint, entries);
                          checkpoint.check_fits(entries);
                          return arrays_text(entries);
                        }));
  check_kinds_of_state(saved, wanted, checkpoint.path());
  std::vector<Tensor> values;
  run_file_work_on_all(ranks, [&] {
    values = checkpoint.read_aside(entries);
    return std::string();
  });
  for (size_t i = 0; i < values.size(); ++i)
    copy_(entries[i].values, values[i]);
  values.clear();
  restore(checkpoint.engine());
}

std::vector<StateEntry> BucketEngine::state() {
  check_alive("state");
  check_between_steps("state", "save and load");
  synchronize();
  std::vector<StateEntry> entries = optimizer_->state();
  for (StateEntry& e : entries)
    e.shared = space_.every_rank_updates_all();
  for (const Variable& p : frozen_)
    if (p.numel() > 0)
      entries.push_back({p.name(), "frozen", p.shape(), 0, p.numel(), p.tensor().flatten(), true});
  return entries;
}

std::string BucketEngine::scalars() const {
  json scalars{{"t", optimizer_->t()},
               {"steps", step_},
               {"lr", lr_},
               {"optimizer", options_.optimizer.type},
               {"precision", name_of(options_.precision)}};
  if (scaler_) {
    const auto& scaler = scaler_->state();
    scalars["loss_scaler"] = {{"scale", scaler.scale},
                              {"good", scaler.good},
                              {"hysteresis_left", scaler.hysteresis_left}};
  }
  return scalars.dump();
}

void BucketEngine::restore(const std::string& text) {
  const json scalars = json::parse(text);
  optimizer_->set_t(scalars.at("t"));
  step_ = scalars.at("steps");
  lr_ = scalars.at("lr");
  if (scaler_) {
    const json& scaler = scalars.at("loss_scaler");
    scaler_->restore({scaler.at("scale"), scaler.at("good"), scaler.at("hysteresis_left")});
  }
  optimizer_->cast_masters();
  after_update();
  synchronize();
  torn_.clear();
  failures_ = 0;  // all ranks are where the checkpoint is
}

}  // namespace sg::dist

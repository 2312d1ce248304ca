// What an engine's checkpoints hold, and how it is saved and loaded.
#include <nlohmann/json.hpp>
#include <set>

#include "core/io/json.h"
#include "dist/checkpoint/checkpoint.h"
#include "dist/checkpoint/ranks.h"
#include "dist/engines/bucket_engine.h"

namespace sg::dist {
namespace {

using nlohmann::json;
using Arrays = std::set<std::pair<std::string, std::string>>;  // kind and parameter

std::string arrays_text(std::span<const StateEntry> entries) {
  Arrays arrays;
  for (const StateEntry& e : entries) arrays.emplace(e.kind, e.parameter);
  return json(arrays).dump();
}

// What the checkpoint has, some rank takes: `held` is every rank's arrays_text.
void check_nothing_is_left(const CheckpointReader& checkpoint, const std::vector<std::string>& held) {
  Arrays taken;
  for (const std::string& text : held) taken.merge(json::parse(text).get<Arrays>());
  for (const std::string& kind : checkpoint.kinds())
    for (const auto& [parameter, shape] : checkpoint.parameters(kind))
      check(ErrorKind::bad_input, taken.contains({kind, parameter}),
            "{}: holds a {} of {}, which has none here; is it another model's or optimizer's?", checkpoint.path(), kind,
            parameter);
}

// The same numbers lie beside the state: a loss scale or none.
void check_scalars(const CheckpointReader& checkpoint, const std::string& here) {
  const json saved = parse_json(checkpoint.engine(), checkpoint.path()), wanted = json::parse(here);
  for (const auto& [a, b, where] : {std::tuple(saved, wanted, "here"), std::tuple(wanted, saved, "there")})
    for (const auto& [name, value] : a.items())
      check(ErrorKind::bad_input, b.contains(name), "{}: there is no {} {}; is its precision another?",
            checkpoint.path(), name, where);
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
  check_scalars(checkpoint, scalars());
  check_nothing_is_left(checkpoint, together(ranks, [&] {
                          checkpoint.check_fits(entries);
                          return arrays_text(entries);
                        }));
  together(ranks, [&] {
    checkpoint.read(entries);
    return std::string();
  });
  restore(checkpoint.engine());
}

std::vector<StateEntry> BucketEngine::state() {
  check_alive("state");
  check(phase_ == Progress::idle && micro_step_ == 0,
        "state: {} of {} micro-steps are done; save and load between steps",
        micro_step_ + (phase_ == Progress::backward_done), options_.micro_steps);
  synchronize();
  std::vector<StateEntry> entries = optimizer_->state();
  for (StateEntry& e : entries) e.shared = norm_->ranks() == 1;  // every rank updates everything
  for (const Variable& p : frozen_)
    if (p.numel() > 0) entries.push_back({p.name(), "frozen", p.shape(), 0, p.numel(), p.tensor().flatten(), true});
  return entries;
}

std::string BucketEngine::scalars() const {
  json scalars{{"t", optimizer_->t()}, {"steps", step_}, {"lr", lr_}};
  if (scaler_) {
    const auto& scaler = scaler_->state();
    scalars["loss_scaler"] = {
        {"scale", scaler.scale}, {"good", scaler.good}, {"hysteresis_left", scaler.hysteresis_left}};
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
  optimizer_->publish_masters();
  publish();
  synchronize();
  torn_.clear();
  failures_ = 0;  // all ranks are where the checkpoint is
}

}  // namespace sg::dist

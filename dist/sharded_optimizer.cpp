#include "dist/sharded_optimizer.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/ops.h"

namespace sg::dist {
namespace {

std::vector<std::string> moments_of(const OptimizerOptions& options) {
  if (options.type == "adamw" || options.type == "adam") return {"moment1", "moment2"};
  if (options.type == "lion") return {"momentum"};
  if (options.type == "sgd")
    return options.momentum > 0 ? std::vector<std::string>{"momentum"} : std::vector<std::string>{};
  fail(ErrorKind::usage, "optimizer: \"{}\" is none of adamw, adam, sgd, lion", options.type);
}

}  // namespace

ShardedOptimizer::ShardedOptimizer(const FlatSpace& space, std::vector<OwnedRange> owned,
                                   const OptimizerOptions& options)
    : space_(space), owned_(std::move(owned)), options_(options) {
  CategoryScope scope(Category::optimizer);
  int64_t total = 0;
  for (const OwnedRange& range : owned_) total += range.end - range.begin;
  // One array per kind of state, cut into the ranges.
  const auto by_range = [&](const Tensor& flat) {
    std::vector<Tensor> parts;
    int64_t at = 0;
    for (const OwnedRange& range : owned_) {
      parts.push_back(flat.slice(0, at, at + range.end - range.begin));
      at += range.end - range.begin;
    }
    return parts;
  };
  if (is_16bit(space.dtype())) masters_ = by_range(empty({total}));
  else
    for (const OwnedRange& range : owned_) masters_.push_back(range.parameters);
  for (const std::string& name : moments_of(options)) kinds_.push_back({name, by_range(zeros({total}))});
  find_runs();
}

void ShardedOptimizer::find_runs() {
  for (size_t r = 0; r < owned_.size(); ++r) {
    const OwnedRange& range = owned_[r];
    for (const Slice& slice : space_.slices(range.begin, range.end)) {
      const Placed& placed = space_.parameters()[static_cast<size_t>(slice.position)];
      const int64_t begin = placed.offset + slice.begin - range.begin, end = placed.offset + slice.end - range.begin;
      const bool joins = !runs_.empty() && runs_.back().range == r && runs_.back().decays == placed.decays;
      if (joins) runs_.back().end = end;
      else runs_.push_back({r, begin, end, placed.decays});
    }
  }
}

void ShardedOptimizer::publish_masters() {
  if (!is_16bit(space_.dtype())) return;
  for (size_t r = 0; r < owned_.size(); ++r) copy_(owned_[r].parameters, masters_[r]);
}

void ShardedOptimizer::step(const std::vector<Tensor>& gradients, double lr, double factor) {
  invariant(gradients.size() == owned_.size(), "optimizer: {} gradients for {} ranges", gradients.size(),
            owned_.size());
  ++steps_;
  for (const Run& run : runs_) update(run, gradients[run.range].slice(0, run.begin, run.end), lr, factor);
}

void ShardedOptimizer::update(const Run& run, const Tensor& gradient, double lr, double factor) {
  const auto part = [&](const Tensor& t) { return t.slice(0, run.begin, run.end); };
  const auto moment = [&](size_t kind) {
    return kind < kinds_.size() ? part(kinds_[kind].by_range[run.range]) : Tensor{};
  };
  const Tensor master = part(masters_[run.range]);
  const Tensor parameter = is_16bit(space_.dtype()) ? part(owned_[run.range].parameters) : Tensor{};
  const auto f = [](double x) { return static_cast<float>(x); };
  const float decay = run.decays ? f(options_.weight_decay) : 0.0f;
  if (options_.type == "sgd") {
    sgd_(master, gradient, moment(0), parameter,
         {f(lr), f(options_.momentum), decay, f(factor), options_.nesterov, steps_ == 1});
  } else if (options_.type == "lion") {
    lion_(master, gradient, moment(0), parameter, {f(lr), f(options_.beta1), f(options_.beta2), decay, f(factor)});
  } else {
    const double t = static_cast<double>(steps_);
    adam_(master, gradient, moment(0), moment(1), parameter,
          {f(lr), f(options_.beta1), f(options_.beta2), f(options_.eps), decay, f(factor),
           f(1 - std::pow(options_.beta1, t)), f(1 - std::pow(options_.beta2, t)), options_.type == "adamw"});
  }
}

std::vector<StateEntry> ShardedOptimizer::state() const {
  std::vector<StateEntry> entries;
  const auto add = [&](const std::string& kind, const std::vector<Tensor>& by_range) {
    for (size_t r = 0; r < owned_.size(); ++r) {
      for (const Slice& slice : space_.slices(owned_[r].begin, owned_[r].end)) {
        const Placed& placed = space_.parameters()[static_cast<size_t>(slice.position)];
        const int64_t begin = placed.offset + slice.begin - owned_[r].begin;
        entries.push_back({placed.parameter.name(), kind, placed.parameter.shape(), slice.begin, slice.end,
                           by_range[r].slice(0, begin, begin + slice.size())});
      }
    }
  };
  add("master", masters_);
  for (const Kind& kind : kinds_) add(kind.name, kind.by_range);
  const auto registration = [&](const StateEntry& entry) {
    const auto& all = space_.parameters();
    const auto found =
        std::find_if(all.begin(), all.end(), [&](const Placed& p) { return p.parameter.name() == entry.parameter; });
    return found->registration;
  };
  std::stable_sort(entries.begin(), entries.end(),
                   [&](const StateEntry& a, const StateEntry& b) { return registration(a) < registration(b); });
  return entries;
}

}  // namespace sg::dist

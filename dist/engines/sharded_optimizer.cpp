#include "dist/engines/sharded_optimizer.h"

#include <algorithm>
#include <map>

#include "core/error.h"
#include "core/ops.h"

namespace sg::dist {

ShardedOptimizer::ShardedOptimizer(const FlatSpace& space,
                                   std::vector<OwnedRange> owned,
                                   const optim::OptimizerOptions& options)
    : space_(space), owned_(std::move(owned)), optimizer_(optim::make_optimizer(options)) {
  int64_t total = 0;
  for (const OwnedRange& range : owned_)
    total += range.end - range.begin;
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
  if (is_16bit(space.dtype())) {
    CategoryScope scope(Category::optimizer);
    masters_ = by_range(empty({total}));
  } else {
    for (const OwnedRange& range : owned_)
      masters_.push_back(range.parameters);
  }
  const std::vector<std::string> names = optimizer_->state_names();
  const std::vector<Tensor> state = optimizer_->make_state(total, current_device());
  for (size_t i = 0; i < names.size(); ++i)
    kinds_.push_back({names[i], by_range(state[i])});
  find_runs();
}

void ShardedOptimizer::find_runs() {
  for (size_t r = 0; r < owned_.size(); ++r) {
    const OwnedRange& range = owned_[r];
    for (const Slice& slice : space_.slices(range.begin, range.end)) {
      const Placed& placed = space_.parameters()[static_cast<size_t>(slice.position)];
      const int64_t begin = placed.offset + slice.begin - range.begin,
                    end = placed.offset + slice.end - range.begin;
      const size_t group = optim::group_of(placed.parameter.shape());
      const bool joins = !runs_.empty() && runs_.back().range == r && runs_.back().group == group;
      if (joins)
        runs_.back().end = end;
      else
        runs_.push_back({r, begin, end, group});
    }
  }
}

void ShardedOptimizer::publish_masters() {
  if (!is_16bit(space_.dtype()))
    return;
  for (size_t r = 0; r < owned_.size(); ++r)
    copy_(owned_[r].parameters, masters_[r]);
}

void ShardedOptimizer::step(const std::vector<Tensor>& gradients, double lr, float factor) {
  invariant(gradients.size() == owned_.size(),
            "optimizer: {} gradients for {} ranges",
            gradients.size(),
            owned_.size());
  optimizer_->set_learning_rate(lr);
  optimizer_->advance();
  for (const Run& run : runs_) {
    const auto part = [&](const Tensor& t) { return t.slice(0, run.begin, run.end); };
    optim::Slice slice{part(masters_[run.range]), part(gradients[run.range]), {}, {}, run.group};
    if (is_16bit(space_.dtype()))
      slice.parameter = part(owned_[run.range].parameters);
    for (const Kind& kind : kinds_)
      slice.state.push_back(part(kind.by_range[run.range]));
    optimizer_->update(slice, factor);
  }
}

std::vector<StateEntry> ShardedOptimizer::state() const {
  std::map<int, std::vector<StateEntry>> by_registration;
  const auto add = [&](const std::string& kind, const std::vector<Tensor>& by_range) {
    for (size_t r = 0; r < owned_.size(); ++r) {
      for (const Slice& slice : space_.slices(owned_[r].begin, owned_[r].end)) {
        const Placed& placed = space_.parameters()[static_cast<size_t>(slice.position)];
        const int64_t begin = placed.offset + slice.begin - owned_[r].begin;
        by_registration[placed.registration].push_back(
            {placed.parameter.name(),
             kind,
             placed.parameter.shape(),
             slice.begin,
             slice.end,
             by_range[r].slice(0, begin, begin + slice.size())});
      }
    }
  };
  add("master", masters_);
  for (const Kind& kind : kinds_)
    add(kind.name, kind.by_range);
  std::vector<StateEntry> entries;
  for (auto& [registration, of_parameter] : by_registration)
    std::move(of_parameter.begin(), of_parameter.end(), std::back_inserter(entries));
  return entries;
}

}  // namespace sg::dist

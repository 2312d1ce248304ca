#include "dist/engines/sharded_optimizer.h"

#include <algorithm>

#include "core/error.h"
#include "core/ops.h"
#include "dist/engines/partition.h"

namespace sg::dist {

ShardedOptimizer::ShardedOptimizer(const FlatSpace& space,
                                   std::vector<Shard> shards,
                                   std::vector<Tensor> parameters,
                                   const optim::OptimizerOptions& options,
                                   CopyStream* copies)
    : space_(space),
      shards_(std::move(shards)),
      parameters_(std::move(parameters)),
      optimizer_(optim::make_optimizer(options)) {
  const int64_t total = size_of(shards_);
  const Device device = copies ? host_of(copies->device()) : current_device();
  if (copies)
    host_ = std::make_unique<HostUpdate>(*copies, space.dtype());
  if (has_masters()) {
    CategoryScope scope(Category::optimizer);
    masters_.by_shard = cut(empty({total}, DType::f32, device));
  } else {
    masters_.by_shard = parameters_;
  }
  const std::vector<std::string> names = optimizer_->state_names();
  const std::vector<Tensor> state = optimizer_->make_state(total, device);
  for (size_t i = 0; i < names.size(); ++i)
    kinds_.push_back({names[i], cut(state[i])});
  find_runs();
}

std::vector<Tensor> ShardedOptimizer::cut(const Tensor& flat) const {
  std::vector<Tensor> parts;
  int64_t begin = 0;
  for (const Shard& shard : shards_) {
    const int64_t end = begin + shard.size();
    parts.push_back(flat.slice(0, begin, end));
    begin = end;
  }
  return parts;
}

void ShardedOptimizer::find_runs() {
  for (size_t s = 0; s < shards_.size(); ++s) {
    const Shard& shard = shards_[s];
    for (const ParameterRange& range : space_.ranges(shard.begin, shard.end)) {
      const Variable& parameter = space_.parameter(range.position).parameter;
      const int64_t begin = space_.begin_of(range) - shard.begin;
      const int64_t end = begin + range.size();
      const size_t group = optim::group_of(parameter.shape());
      const bool joins = !runs_.empty() && runs_.back().shard == s && runs_.back().group == group;
      if (joins)
        runs_.back().end = end;
      else
        runs_.push_back({s, begin, end, group});
    }
  }
}

void ShardedOptimizer::visit_masters(const Placed& parameter, const VisitMaster& visit) const {
  const int64_t offset = parameter.offset;
  for (size_t s = first_behind(shards_, offset); s < shards_.size(); ++s) {
    const Shard& shard = shards_[s];
    if (shard.begin >= parameter.end())
      return;
    const int64_t first = std::max(shard.begin, offset);
    const int64_t last = std::min(shard.end, parameter.end());
    const Tensor& master = masters_.by_shard[s];
    const Tensor part = master.slice(0, first - shard.begin, last - shard.begin);
    visit(part, first - offset, last - offset);
  }
}

void ShardedOptimizer::cast_masters() {
  if (!has_masters())
    return;
  for (size_t s = 0; s < shards_.size(); ++s)
    copy_(parameters_[s], masters_.by_shard[s]);
}

optim::Slice ShardedOptimizer::slice_of(const Run& run,
                                        const std::vector<Tensor>& gradients) const {
  const auto part = [&](const std::vector<Tensor>& by_shard) {
    return by_shard[run.shard].slice(0, run.begin, run.end);
  };
  optim::Slice slice{part(masters_.by_shard), part(gradients), {}, {}, run.group};
  for (const Kind& kind : kinds_)
    slice.state.push_back(part(kind.by_shard));
  return slice;
}

void ShardedOptimizer::step(const std::vector<Tensor>& gradients,
                            double lr,
                            float factor,
                            const Updated& updated) {
  invariant(gradients.size() == shards_.size(),
            "optimizer: {} gradients for {} shards",
            gradients.size(),
            shards_.size());
  optimizer_->set_learning_rate(lr);
  optimizer_->advance();
  if (host_)
    return step_on_host(gradients, factor, updated);
  for (const Run& run : runs_) {
    optim::Slice slice = slice_of(run, gradients);
    if (has_masters())
      slice.parameter = parameters_[run.shard].slice(0, run.begin, run.end);
    optimizer_->update(slice, factor);
  }
}

// The last bucket has the parameters that forward needs first.
void ShardedOptimizer::step_on_host(const std::vector<Tensor>& gradients,
                                    float factor,
                                    const Updated& updated) {
  for (auto run = runs_.rbegin(); run != runs_.rend(); ++run) {
    const Tensor parameters = parameters_[run->shard].slice(0, run->begin, run->end);
    const Event there = host_->update(*optimizer_, slice_of(*run, gradients), parameters, factor);
    updated(shards_[run->shard].bucket, there);
  }
  host_->wait();
}

void ShardedOptimizer::add_state(const Kind& kind,
                                 std::vector<std::vector<StateEntry>>& by_registration) const {
  for (size_t s = 0; s < shards_.size(); ++s) {
    const Shard& shard = shards_[s];
    for (const ParameterRange& range : space_.ranges(shard.begin, shard.end)) {
      const Placed& placed = space_.parameter(range.position);
      const int64_t begin = space_.begin_of(range) - shard.begin;
      StateEntry entry;
      entry.parameter = placed.parameter.name();
      entry.kind = kind.name;
      entry.shape = placed.parameter.shape();
      entry.begin = range.begin;
      entry.end = range.end;
      entry.values = kind.by_shard[s].slice(0, begin, begin + range.size());
      by_registration[placed.registration].push_back(std::move(entry));
    }
  }
}

std::vector<StateEntry> ShardedOptimizer::state() const {
  std::vector<std::vector<StateEntry>> by_registration(space_.parameters().size());
  add_state(masters_, by_registration);
  for (const Kind& kind : kinds_)
    add_state(kind, by_registration);
  std::vector<StateEntry> entries;
  for (std::vector<StateEntry>& of_parameter : by_registration)
    std::move(of_parameter.begin(), of_parameter.end(), std::back_inserter(entries));
  return entries;
}

}  // namespace sg::dist

// The end of a step: gradients have arrived, all ranks judge alike from each other's reports, and
// the owners update.
#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "dist/comm/reduce.h"
#include "dist/engines/bucket_engine.h"

namespace sg::dist {
namespace {

std::vector<std::vector<double>> roots_of(const std::vector<StepReport>& reports, int ranks) {
  std::vector<std::vector<double>> roots;
  for (int rank = 0; rank < ranks; ++rank)
    roots.push_back(reports[static_cast<size_t>(rank)].roots);
  return roots;
}

}  // namespace

StepResult BucketEngine::end_step() {
  limit_in_flight(0);
  std::vector<Tensor> gradients;
  for (const Owned& part : owned_)
    gradients.push_back(part.gradient.total());
  const std::vector<StepReport> reports = exchange(gradients);
  const double more = weight_factor(reports, step_);
  StepResult result = judge(reports, more);
  if (result.applied) {
    torn_ = fmt::format("the update of step {} failed half-way", step_);
    optimizer_->step(
        gradients, lr_, optim::clip_factor(result.norm, options_.clip, result.loss_scale, more));
    publish();
    torn_.clear();
  }
  ++step_;
  micro_step_ = 0;
  losses_.clear();
  weights_.clear();
  positions_ = 0;
  nonfinite_.reset();
  flags_ = 0;
  return result;
}

// Every rank's report, the norm's roots of all parameters among them.
std::vector<StepReport> BucketEngine::exchange(const std::vector<Tensor>& gradients) {
  std::vector<Tensor> runs;  // of one parameter each
  for (size_t i = 0; i < owned_.size(); ++i) {
    for (const Slice& slice : space_.slices(owned_[i].begin, owned_[i].end)) {
      const int64_t begin = space_.parameters()[static_cast<size_t>(slice.position)].offset +
                            slice.begin - owned_[i].begin;
      runs.push_back(gradients[i].slice(0, begin, begin + slice.size()));
    }
  }
  if (comm_.device().type == DeviceType::meta)
    return {{flags_, {}, losses_, weights_, positions_, {}}};  // a dry run has no values
  const bool whole = norm_->ranks() == 1;  // every rank holds everything: no need to send it
  std::vector<double> roots = norm_->roots(whole ? 0 : comm_.rank(), runs);
  const auto finite = [](double root) { return std::isfinite(root); };
  if (comm_.size() == 1 && !nonfinite_ && !std::all_of(roots.begin(), roots.end(), finite))
    look_alone(gradients);
  StepReport mine{flags_, nonfinite_, losses_, weights_, positions_, {}};
  if (!whole)
    mine.roots = std::move(roots);
  std::vector<StepReport> reports;
  for (const std::string& bytes :
       comm_.all_gather_bytes({"step.report", Phase::metrics}, encode(mine))) {
    reports.push_back(decode(bytes));
  }
  if (whole)
    reports[0].roots = std::move(roots);
  return reports;
}

// With several ranks each reduction told of values that weren't finite; alone, nothing looked while
// they arrived.
void BucketEngine::look_alone(const std::vector<Tensor>& gradients) {
  for (size_t i = 0; i < gradients.size() && !nonfinite_; ++i) {
    const Tensor& g = gradients[i];
    if (const auto at = first_nonfinite(g.dtype(), g.view().data, g.numel())) {
      nonfinite_ = NonFinite{0, owned_[i].begin + *at};
    }
  }
}

// From what all ranks know, the same verdict on each: whether the update is applied, and if not,
// why.
StepResult BucketEngine::judge(const std::vector<StepReport>& reports, double more) {
  StepResult result;
  result.complete = true;
  result.loss = mean_loss(reports);
  result.loss_scale = scale_;
  const bool dry = comm_.device().type == DeviceType::meta;
  const std::vector<double> sums =
      dry ? std::vector<double>() : norm_->parameter_sums(roots_of(reports, norm_->ranks()));
  result.norm = optim::global_norm(sums, scale_, more);
  for (const StepReport& report : reports)
    result.flags |= report.flags;
  const std::string cause = nonfinite_cause(reports, sums);
  result.applied = cause.empty();
  if (!result.applied)
    result.skipped = fmt::format("step {}: {}", step_, cause);
  if (scaler_) {
    scaler_->update(!result.applied, result.skipped);
  } else if (!result.applied && options_.on_nonfinite == OnNonFinite::stop) {
    fail(ErrorKind::numeric, "{}; parameters are those of the last step", result.skipped);
  }
  return result;
}

// Which rank's which value isn't finite; empty where all are.
std::string BucketEngine::nonfinite_cause(const std::vector<StepReport>& reports,
                                          std::span<const double> sums) const {
  for (size_t j = 0; j < reports[0].losses.size(); ++j) {
    for (size_t rank = 0; rank < reports.size(); ++rank) {
      const float loss = reports[rank].losses[j];
      if (!std::isfinite(loss))
        return fmt::format(
            "the loss is {} (rank {}, micro-batch {})", loss, rank, j * reports.size() + rank);
    }
  }
  const std::string parameter = norm_->first_nonfinite(sums);
  if (parameter.empty())
    return {};
  for (const StepReport& report : reports) {
    if (!report.nonfinite)
      continue;
    const Placed& placed = space_.at(report.nonfinite->offset);
    const std::string where = fmt::format("the gradient of {} isn't finite (element {}",
                                          placed.parameter.name(),
                                          report.nonfinite->offset - placed.offset);
    return where + (report.nonfinite->rank >= 0 ? fmt::format(", rank {})", report.nonfinite->rank)
                                                : ", the sum over ranks)");
  }
  return fmt::format("the gradient of {} isn't finite", parameter);
}

}  // namespace sg::dist

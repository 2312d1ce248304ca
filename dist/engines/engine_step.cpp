// The end of a step: gradients have arrived, all ranks judge alike from each other's reports, and
// the owners update.
#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/ops.h"
#include "dist/engines/bucket_engine.h"

namespace sg::dist {

StepResult BucketEngine::end_step() {
  synchronize_gradients(0);
  const std::vector<Tensor> gradients = sums_->totals();
  const std::vector<RankReport> reports = exchange(gradients);
  const double more = weight_factor(reports, step_);
  StepResult result = judge(reports, more);
  if (result.applied) {
    torn_ = fmt::format("the update of step {} failed half-way", step_);
    const float factor = optim::clip_factor(result.norm, options_.clip, result.loss_scale, more);
    const auto updated = [this](int bucket, const Event& there) { updated_[bucket] = there; };
    optimizer_->step(gradients, lr_, factor, updated);
    after_update();
    torn_.clear();
  }
  ++step_;
  micro_step_ = 0;
  mine_ = {};
  return result;
}

// Every rank's report, the norm's roots of all parameters among them.
std::vector<RankReport> BucketEngine::exchange(const std::vector<Tensor>& gradients) {
  if (!norm_)
    return {mine_};
  const bool alike = space_.every_rank_updates_all();  // no need to send roots
  std::vector<double> roots = norm_->roots(alike ? 0 : comm_.rank(), gradients);
  const auto is_finite = [](double root) { return std::isfinite(root); };
  const bool finite = std::all_of(roots.begin(), roots.end(), is_finite);
  if (comm_.size() == 1 && !finite && !mine_.nonfinite)
    note_nonfinite(gradients);
  if (!alike)
    mine_.roots = std::move(roots);
  std::vector<RankReport> reports;
  const Call call{"step.report", Phase::metrics};
  for (const std::string& bytes : comm_.all_gather_bytes(call, encode(mine_)))
    reports.push_back(decode(bytes));
  if (alike)
    reports[0].roots = std::move(roots);
  return reports;
}

// With several ranks each reduction told of values that weren't finite; alone, nothing looked while
// they arrived.
void BucketEngine::note_nonfinite(const std::vector<Tensor>& gradients) {
  for (size_t i = 0; i < gradients.size(); ++i) {
    const int64_t offset = find_nonfinite(gradients[i]).item<int64_t>();
    if (offset < 0)
      continue;
    mine_.nonfinite = NonFinite{0, shards_[i].begin + offset};
    return;
  }
}

std::vector<double> BucketEngine::parameter_sums(const std::vector<RankReport>& reports) const {
  if (!norm_)
    return {};
  std::vector<std::vector<double>> roots;
  for (int rank = 0; rank < norm_->ranks(); ++rank)
    roots.push_back(reports[rank].roots);
  return norm_->parameter_sums(roots);
}

// From what all ranks know, the same verdict on each: whether the update is applied, and if not,
// why.
StepResult BucketEngine::judge(const std::vector<RankReport>& reports, double more) {
  StepResult result;
  result.complete = true;
  result.loss = mean_loss(reports);
  result.loss_scale = scale_;
  const std::vector<double> sums = parameter_sums(reports);
  result.norm = optim::global_norm(sums, scale_, more);
  for (const RankReport& report : reports)
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
std::string BucketEngine::nonfinite_cause(const std::vector<RankReport>& reports,
                                          std::span<const double> sums) const {
  for (size_t j = 0; j < reports[0].losses.size(); ++j) {
    for (size_t rank = 0; rank < reports.size(); ++rank) {
      const float loss = reports[rank].losses[j];
      if (!std::isfinite(loss))
        return fmt::format(
            "the loss is {} (rank {}, micro-batch {})", loss, rank, j * reports.size() + rank);
    }
  }
  const std::string parameter = norm_ ? norm_->first_nonfinite(sums) : "";
  if (parameter.empty())
    return {};
  for (const RankReport& report : reports) {
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

#include "dist/engines/step_report.h"

#include <cstring>

#include "core/error.h"
#include "core/ops.h"

namespace sg::dist {
namespace {

struct Header {
  uint32_t flags;
  int32_t nonfinite_rank;
  int64_t nonfinite_offset;  // −1: none
  int64_t positions;
  uint64_t losses, roots;  // and as many weights as losses
};

template <class T>
void append(std::string& bytes, const std::vector<T>& values) {
  if (!values.empty())
    bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

template <class T>
std::vector<T> take(std::string_view& bytes, size_t count) {
  std::vector<T> values(count);
  if (count > 0)
    std::memcpy(values.data(), bytes.data(), count * sizeof(T));
  bytes.remove_prefix(count * sizeof(T));
  return values;
}

// What `value` gives for each micro-batch, by its number.
template <class Value>
std::vector<double> by_number(std::span<const RankReport> reports, Value&& value) {
  std::vector<double> values;
  for (size_t j = 0; j < reports[0].losses.size(); ++j) {
    for (const RankReport& report : reports)
      values.push_back(value(report, j));
  }
  return values;
}

std::vector<double> weights_of(std::span<const RankReport> reports) {
  return by_number(reports, [](const RankReport& r, size_t j) { return r.weights.at(j); });
}

}  // namespace

void forget_step(RankReport& report) {
  const uint32_t flags = report.flags;
  report = {};
  report.flags = flags;
}

double weigh(const std::optional<Targets>& targets, RankReport& report) {
  if (!targets)
    return 1;
  const bool possible = targets->count >= 0 && targets->count <= targets->of;
  check(targets->of > 0 && possible,
        "forward: {} targets of {} positions: give the micro-batch's targets and the run's "
        "micro-batch × context",
        targets->count,
        targets->of);
  check(report.positions == 0 || report.positions == targets->of,
        "forward: targets of {} positions in a step whose micro-batches before are of {}: it is "
        "the run's micro-batch × "
        "context, not the batch's own size",
        targets->of,
        report.positions);
  report.positions = targets->of;
  return 1.0 * targets->count / targets->of;
}

void check_targets(const std::optional<Targets>& given, const TargetsMet& met) {
  check(given || met.targets() == met.positions(),
        "forward: {} of {} positions have no target (−1): give forward their number, {{.count = "
        "{}, .of = micro-batch × "
        "context}}, so that the step follows the mean over all its targets",
        met.positions() - met.targets(),
        met.positions(),
        met.targets());
  check(!given || met.losses() != 1 || met.targets() == given->count,
        "forward: it was given {} targets, the loss counted {}",
        given ? given->count : 0,
        met.targets());
}

std::string encode(const RankReport& report) {
  const NonFinite none{0, -1}, found = report.nonfinite.value_or(none);
  const Header header{report.flags,
                      found.rank,
                      found.offset,
                      report.positions,
                      report.losses.size(),
                      report.roots.size()};
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof header);
  append(bytes, report.losses);
  append(bytes, report.weights);
  append(bytes, report.roots);
  return bytes;
}

RankReport decode(std::string_view bytes) {
  Header header;
  invariant(bytes.size() >= sizeof header, "step report: {} bytes", bytes.size());
  std::memcpy(&header, bytes.data(), sizeof header);
  const size_t losses = header.losses * (sizeof(float) + sizeof(double)),
               roots = header.roots * sizeof(double);
  invariant(bytes.size() == sizeof header + losses + roots,
            "step report: {} bytes for {} losses and {} roots",
            bytes.size(),
            header.losses,
            header.roots);
  bytes.remove_prefix(sizeof header);
  RankReport report;
  report.flags = header.flags;
  if (header.nonfinite_offset >= 0)
    report.nonfinite = NonFinite{header.nonfinite_rank, header.nonfinite_offset};
  report.positions = header.positions;
  report.losses = take<float>(bytes, header.losses);
  report.weights = take<double>(bytes, header.losses);
  report.roots = take<double>(bytes, header.roots);
  return report;
}

float mean_loss(std::span<const RankReport> reports) {
  const std::vector<double> losses = by_number(
      reports, [](const RankReport& r, size_t j) { return r.weights.at(j) * r.losses[j]; });
  return tree_sum(losses) / tree_sum(weights_of(reports));
}

double weight_factor(std::span<const RankReport> reports, int64_t step) {
  int64_t positions = 0;
  for (size_t rank = 0; rank < reports.size(); ++rank) {
    const int64_t own = reports[rank].positions;
    check(own == 0 || positions == 0 || own == positions,
          "step {}: targets of {} positions at rank {}, of {} before: it is the run's micro-batch "
          "× context, the same "
          "on all ranks",
          step,
          own,
          rank,
          positions);
    if (own != 0)
      positions = own;
  }
  const std::vector<double> weights = weights_of(reports);
  const double sum = tree_sum(weights);
  check(ErrorKind::numeric,
        sum > 0,
        "step {}: none of its {} micro-batches has a target; parameters are unchanged",
        step,
        weights.size());
  return weights.size() / sum;
}

}  // namespace sg::dist

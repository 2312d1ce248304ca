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
  uint64_t losses, roots;
};

}  // namespace

std::string encode(const StepReport& report) {
  const NonFinite none{0, -1}, found = report.nonfinite.value_or(none);
  const Header header{report.flags, found.rank, found.offset, report.losses.size(), report.roots.size()};
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof header);
  bytes.append(reinterpret_cast<const char*>(report.losses.data()), report.losses.size() * sizeof(float));
  bytes.append(reinterpret_cast<const char*>(report.roots.data()), report.roots.size() * sizeof(double));
  return bytes;
}

StepReport decode(std::string_view bytes) {
  Header header;
  invariant(bytes.size() >= sizeof header, "step report: {} bytes", bytes.size());
  std::memcpy(&header, bytes.data(), sizeof header);
  const size_t losses = header.losses * sizeof(float), roots = header.roots * sizeof(double);
  invariant(bytes.size() == sizeof header + losses + roots, "step report: {} bytes for {} losses and {} roots",
            bytes.size(), header.losses, header.roots);
  StepReport report{header.flags, std::nullopt, std::vector<float>(header.losses), std::vector<double>(header.roots)};
  if (header.nonfinite_offset >= 0) report.nonfinite = NonFinite{header.nonfinite_rank, header.nonfinite_offset};
  if (losses > 0) std::memcpy(report.losses.data(), bytes.data() + sizeof header, losses);
  if (roots > 0) std::memcpy(report.roots.data(), bytes.data() + sizeof header + losses, roots);
  return report;
}

float mean_loss(std::span<const StepReport> reports) {
  std::vector<double> losses;
  for (size_t j = 0; j < reports[0].losses.size(); ++j) {
    for (const StepReport& report : reports) losses.push_back(report.losses.at(j));
  }
  return static_cast<float>(tree_sum(losses) / static_cast<double>(losses.size()));
}

}  // namespace sg::dist

#include "dist/comm/transport.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

namespace sg::dist {
namespace {

std::string name_ranks(const std::vector<int>& ranks) {
  return ranks.empty() ? "its peers" : fmt::format("rank{} {}", ranks.size() > 1 ? "s" : "", fmt::join(ranks, ", "));
}

Watch::Clock::duration seconds(double s) {
  return std::chrono::duration_cast<Watch::Clock::duration>(std::chrono::duration<double>(s));
}

}  // namespace

Watch::Watch(const CallRecord& call, int rank, double timeout)
    : call_(call),
      rank_(rank),
      timeout_(timeout),
      begin_(Clock::now()),
      warning_(begin_ + seconds(timeout / 2)),
      deadline_(begin_ + seconds(timeout)) {}

void Watch::check(const std::vector<int>& awaited) {
  const auto now = Clock::now();
  if (now < next()) return;
  if (now >= deadline_) {
    fail(ErrorKind::peer,
         "{} on rank {}, call #{}: no answer from {} within {:.3g} s (--comm-timeout): it has ended, hangs, or never "
         "makes this call",
         call_.describe(), rank_, call_.sequence, name_ranks(awaited), timeout_);
  }
  warned_ = true;
  spdlog::warn("{} on rank {}, call #{}: has waited {:.3g} s for {}", call_.describe(), rank_, call_.sequence,
               std::chrono::duration<double>(now - begin_).count(), name_ranks(awaited));
}

}  // namespace sg::dist

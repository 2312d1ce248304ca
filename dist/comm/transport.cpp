#include "dist/comm/transport.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>

namespace sg::dist {
namespace {

std::string name_ranks(const std::vector<int>& ranks) {
  return ranks.empty()
             ? "its peers"
             : fmt::format("rank{} {}", ranks.size() > 1 ? "s" : "", fmt::join(ranks, ", "));
}

// A century at most: nobody sees the difference, and points in time stay within their type.
Watch::Clock::duration seconds(double s) {
  const double century = 3.2e9;
  return std::chrono::duration_cast<Watch::Clock::duration>(
      std::chrono::duration<double>(std::min(s, century)));
}

// A message as its other end sees it: `mine` is that of `rank`.
CallRecord mirrored(CallRecord record, const CallRecord& mine, int rank) {
  if (record.peer < 0 || mine.peer < 0)
    return record;
  if (record.operation == Operation::send || record.operation == Operation::recv)
    record.operation = record.operation == Operation::send ? Operation::recv : Operation::send;
  if (record.peer == rank)
    record.peer = mine.peer;
  return record;
}

std::string told(const CallRecord& call, int rank) {
  if (call.ends_program())
    return fmt::format("rank {} has returned from its program", rank);
  return fmt::format("rank {} makes call #{}, {}", rank, call.sequence, call.describe());
}

}  // namespace

Watch::Watch(const CallRecord& call, int rank, double timeout, bool compares)
    : call_(call), rank_(rank), timeout_(timeout), compares_(compares) {
  restart();
}

void Watch::restart() {
  begin_ = Clock::now();
  warning_ = begin_ + seconds(timeout_ / 2);
  deadline_ = begin_ + seconds(timeout_);
  warned_ = false;
}

void Watch::compare(const CallRecord& theirs, int rank, int from, int world_from) const {
  const CallRecord seen = mirrored(theirs, call_, rank);
  const std::string what = difference(call_, seen);
  if (what.empty() && (call_.peer < 0 || theirs.peer == rank || theirs.peer == from))
    return;
  const std::string mine = told(call_, rank_), other = told(theirs, world_from);
  const bool first = rank_ < world_from;
  fail(ErrorKind::peer,
       "ranks make different calls: the {} differs: {}; {}",
       what.empty() ? "peer" : what,
       first ? mine : other,
       first ? other : mine);
}

std::vector<int> Transport::members(const std::vector<int>& colours,
                                    const std::vector<int>& keys) const {
  std::vector<int> ranks;
  for (int p = 0; p < size(); ++p) {
    if (colours[p] == colours[rank()])
      ranks.push_back(p);
  }
  std::stable_sort(ranks.begin(), ranks.end(), [&](int a, int b) { return keys[a] < keys[b]; });
  for (int& p : ranks)
    p = world_rank(p);
  return ranks;
}

void Watch::check(const std::vector<int>& awaited) {
  const auto now = Clock::now();
  if (now < next())
    return;
  if (now >= deadline_) {
    fail(ErrorKind::peer,
         "{} on rank {}, call #{}: no answer from {} within {:.3g} s (--comm-timeout): it has "
         "ended, hangs, or never "
         "makes this call",
         call_.describe(),
         rank_,
         call_.sequence,
         name_ranks(awaited),
         timeout_);
  }
  warned_ = true;
  spdlog::warn("{} on rank {}, call #{}: has waited {:.3g} s for {}",
               call_.describe(),
               rank_,
               call_.sequence,
               std::chrono::duration<double>(now - begin_).count(),
               name_ranks(awaited));
}

}  // namespace sg::dist

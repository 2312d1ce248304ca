#include "dist/comm/reduce.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/error.h"

namespace sg::dist {

std::optional<int64_t> first_nonfinite(const KernelTable& kernels, const View& x) {
  int64_t first = -1;
  if (const auto find = kernels.find_nonfinite[x.dtype])
    find(x, flat_view(&first, DType::i64, 1), {});
  return first < 0 ? std::nullopt : std::optional(first);
}

std::optional<NonFinite> sum_in_rank_order(const KernelTable& kernels,
                                           std::span<const View> inputs,
                                           std::span<const View> outs,
                                           float scale,
                                           int64_t offset) {
  int64_t found[] = {-1, -1};
  const View first = flat_view(found, DType::i64, 2);
  const auto sum = kernels.tree_sum[inputs[0].dtype];
  sum(inputs.data(), std::ssize(inputs), outs.data(), std::ssize(outs), scale, first, {});
  const auto [at, rank] = found;
  return at < 0 ? std::nullopt : std::optional(NonFinite{static_cast<int>(rank), offset + at});
}

Tensor reduction_slices(int ranks) {
  const CategoryScope category(Category::communication);
  return empty({2, ranks, static_cast<int64_t>(slice_bytes)}, DType::u8);
}

std::vector<RingStep> ring_steps(int rank, int ranks, bool all) {
  const auto block = [&](int b) { return (b % ranks + ranks) % ranks; };
  const int first = all ? rank : rank - 1;
  std::vector<RingStep> steps;
  for (int s = 0; s < ranks - 1; ++s) {
    steps.push_back({RingStep::Phase::scatter_reduce, block(first - s), block(first - s - 1)});
  }
  for (int s = 0; all && s < ranks - 1; ++s) {
    steps.push_back({RingStep::Phase::all_gather, block(rank + 1 - s), block(rank - s)});
  }
  return steps;
}

void reduce_ring(Transport& transport,
                 const ReduceJob& job,
                 const View& buffers,
                 Watch& watch,
                 const RingObserver& observe) {
  const int n = transport.size(), rank = transport.rank();
  const auto sum = [&](std::initializer_list<View> terms, const View& out, float scale) {
    sum_in_rank_order(*job.kernels, {terms.begin(), terms.size()}, {&out, 1}, scale, 0);
  };
  if (n == 1)
    return sum({job.in}, job.out, job.scale);
  const int64_t largest = job.shards.largest();
  View incoming = flat_range(buffers, 0, largest);
  View partial = flat_range(buffers, largest, largest);
  const int next = (rank + 1) % n, previous = (rank + n - 1) % n;
  const std::vector<RingStep> steps = ring_steps(rank, n, job.all);
  for (int s = 0; s < std::ssize(steps); ++s) {
    const auto [phase, out, in] = steps[s];
    Pieces send(n), receive(n);
    if (phase == RingStep::Phase::all_gather) {
      send[next] = piece_of(job.out_of(out));
      receive[previous] = piece_of(job.out_of(in));
      transport.exchange(send, receive, watch);
      if (observe)
        observe(steps[s], job.out_of(in));
      continue;
    }
    const int64_t count = job.shards.count(in);
    const View arriving = flat_range(incoming, 0, count);
    const View leaving = flat_range(partial, 0, job.shards.count(out));
    send[next] = piece_of(s == 0 ? job.in_of(out) : leaving);
    receive[previous] = piece_of(arriving);
    transport.exchange(send, receive, watch);
    const bool last = s == n - 2;
    const View to = last ? job.out_of(in) : arriving;
    sum({arriving, job.in_of(in)}, to, last ? job.scale : 1);
    if (observe)
      observe(steps[s], to);
    std::swap(incoming, partial);
  }
}

Traffic traffic_of(const ReduceJob& job, Algorithm algorithm, int rank) {
  const int n = job.shards.ranks();
  if (n == 1)
    return {.calls = 1};
  const auto all_but = [&](int b) { return job.shards.total() - job.shards.count((b + n) % n); };
  if (algorithm == Algorithm::ring) {
    if (!job.all)
      return {1, job.in_bytes(all_but(rank)), job.in_bytes(all_but(rank - 1)), 0};
    return {1,
            job.in_bytes(all_but((rank + 1) % n)) + job.out_bytes(all_but((rank + 2) % n)),
            job.in_bytes(all_but(rank)) + job.out_bytes(all_but((rank + 1) % n)),
            0};
  }
  const int64_t others = all_but(rank), own = (n - 1) * job.shards.count(rank);
  Traffic traffic{1, job.in_bytes(others), job.in_bytes(own), 0};
  if (job.all)
    traffic += {0, job.out_bytes(own), job.out_bytes(others), 0};
  return traffic;
}

}  // namespace sg::dist

#include "dist/comm/reduce.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "core/error.h"

namespace sg::dist {
namespace {

View flat_view(const void* data, DType dtype, int64_t count) {
  View view{.data = const_cast<void*>(data), .dtype = dtype, .rank = 1};
  view.shape[0] = count;
  view.strides[0] = 1;
  return view;
}

// Vectorised by the compiler for AVX2, which every processor that our kernels run on has.
#if defined(__x86_64__)
#define SG_AVX2 __attribute__((target("avx2")))
#else
#define SG_AVX2
#endif
template <class Word>
SG_AVX2 bool any_nonfinite(const Word* x, int64_t count, Word exponent) {
  Word found = 0;
  for (int64_t i = 0; i < count; ++i)
    found |= static_cast<Word>((x[i] & exponent) == exponent);
  return found != 0;
}

template <class Word>
std::optional<int64_t> first_nonfinite(const void* data, int64_t count, Word exponent) {
  const Word* x = static_cast<const Word*>(data);
  if (!any_nonfinite(x, count, exponent))
    return std::nullopt;
  return std::find_if(x, x + count, [=](Word bits) { return (bits & exponent) == exponent; }) - x;
}

constexpr size_t chunk_bytes =
    8 * 1024;  // of a chunk's sum, which stays in the first-level cache beside its terms

}  // namespace

std::optional<int64_t> first_nonfinite(DType dtype, const void* x, int64_t count) {
  switch (dtype) {
    case DType::f32: return first_nonfinite<uint32_t>(x, count, 0x7f800000u);
    case DType::f64: return first_nonfinite<uint64_t>(x, count, 0x7ff0000000000000u);
    case DType::f16: return first_nonfinite<uint16_t>(x, count, 0x7c00u);
    case DType::bf16: return first_nonfinite<uint16_t>(x, count, 0x7f80u);
    default: return std::nullopt;
  }
}

std::optional<NonFinite> sum_in_rank_order(const ReduceJob& job,
                                           std::span<const void* const> inputs,
                                           int64_t count,
                                           std::span<void* const> outs,
                                           int64_t offset) {
  const auto kernel = job.kernels->tree_sum[job.dtype];
  alignas(64) std::array<std::byte, chunk_bytes> sum;
  const auto chunk = static_cast<int64_t>(chunk_bytes / size_of(job.out_dtype));
  std::vector<View> views(inputs.size());
  std::optional<NonFinite> found;
  for (int64_t begin = 0; begin < count; begin += chunk) {
    const int64_t length = std::min(chunk, count - begin);
    for (size_t i = 0; i < inputs.size(); ++i) {
      views[i] =
          flat_view(static_cast<const char*>(inputs[i]) + job.in_bytes(begin), job.dtype, length);
    }
    kernel(views.data(),
           static_cast<int>(views.size()),
           flat_view(sum.data(), job.out_dtype, length),
           job.scale,
           {});
    // What isn't finite in an input isn't finite in the sum either, so the inputs are searched only
    // then.
    if (const auto bad =
            found ? std::nullopt : first_nonfinite(job.out_dtype, sum.data(), length)) {
      found = NonFinite{-1, offset + begin + *bad};
      for (size_t i = 0; i < views.size() && found->rank < 0; ++i) {
        const auto at = first_nonfinite(job.dtype, views[i].data, length);
        if (at)
          found = NonFinite{static_cast<int>(i), offset + begin + *at};
      }
    }
    for (void* out : outs) {
      std::memcpy(
          static_cast<char*>(out) + job.out_bytes(begin), sum.data(), job.out_bytes(length));
    }
  }
  return found;
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
                 const Tensor& buffers,
                 Watch& watch,
                 const RingObserver& observe) {
  const int n = transport.size(), rank = transport.rank();
  if (n == 1) {
    const void* const own = job.in;
    sum_in_rank_order(job, {&own, 1}, job.shards.total(), {&job.out, 1}, 0);
    return;
  }
  void* incoming = buffers.view().data;
  void* partial = static_cast<char*>(incoming) + job.in_bytes(job.shards.largest());
  ReduceJob unscaled = job;  // of partial sums
  unscaled.scale = 1, unscaled.out_dtype = job.dtype;

  const auto next = static_cast<size_t>((rank + 1) % n),
             previous = static_cast<size_t>((rank + n - 1) % n);
  const auto steps = ring_steps(rank, n, job.all);
  for (size_t s = 0; s < steps.size(); ++s) {
    const auto [phase, out, in] = steps[s];
    Pieces send(static_cast<size_t>(n)), receive(static_cast<size_t>(n));
    if (phase == RingStep::Phase::all_gather) {
      send[next] = {job.out_of(out), job.out_bytes(job.shards.count(out))};
      receive[previous] = {job.out_of(in), job.out_bytes(job.shards.count(in))};
      transport.exchange(send, receive, watch);
      if (observe)
        observe(steps[s], receive[previous].data);
      continue;
    }
    send[next] = {s == 0 ? job.in_of(out) : partial, job.in_bytes(job.shards.count(out))};
    receive[previous] = {incoming, job.in_bytes(job.shards.count(in))};
    transport.exchange(send, receive, watch);
    const bool last = s == static_cast<size_t>(n) - 2;
    const void* const terms[] = {incoming, job.in_of(in)};
    void* const sum = last ? job.out_of(in) : incoming;
    sum_in_rank_order(last ? job : unscaled, terms, job.shards.count(in), {&sum, 1}, 0);
    if (observe)
      observe(steps[s], sum);
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

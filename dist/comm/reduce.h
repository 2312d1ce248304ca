// The arithmetic of reductions on one rank, and the ring.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "dist/comm/transport.h"

namespace sg::dist {

// out[i] = round(scale · tree(inputs[·][i])) for every out: one kernel call on the calling thread.
// Any of the outs may be an input. Reports the first sum that isn't finite by the first rank whose
// contribution isn't; `offset` is that of element 0.
std::optional<NonFinite> sum_in_rank_order(const KernelTable& kernels,
                                           std::span<const View> inputs,
                                           std::span<const View> outs,
                                           float scale,
                                           int64_t offset);

// Position of the first value that isn't finite; x is dense.
std::optional<int64_t> first_nonfinite(const KernelTable& kernels, const View& x);

// What an ordered reduction between processes works in: two slices of every rank's terms, (2,
// ranks, slice_bytes) u8, booked as communication.
inline constexpr uint64_t slice_bytes = 256 * 1024;
Tensor reduction_slices(int ranks);

// One step of a rank in the ring: the block it sends to the next rank and the one it receives from
// the previous.
struct RingStep {
  enum class Phase : uint8_t { scatter_reduce, all_gather };
  Phase phase;
  int send, receive;
};
// The steps of `rank`, in order: N − 1 that scatter and reduce and, where all ranks receive the
// whole, N − 1 that gather. Block b is rank b's shard. In the textbook's convention rank r sends
// block r first and ends the first phase with the sum of block r + 1; a reduce-scatter begins one
// block earlier, so that rank r ends with its own.
std::vector<RingStep> ring_steps(int rank, int ranks, bool all);

// Told after each step of this rank what it now has of the step's received block: a partial sum, or
// the whole one.
using RingObserver = std::function<void(const RingStep& step, const View& block)>;

// Partial sums travel in the input's dtype. `buffers`: two of the largest shard, of that dtype; one
// rank needs none.
void reduce_ring(Transport& transport,
                 const ReduceJob& job,
                 const View& buffers,
                 Watch& watch,
                 const RingObserver& observe = {});

// The bytes that the algorithm moves for this job on `rank`.
Traffic traffic_of(const ReduceJob& job, Algorithm algorithm, int rank);

}  // namespace sg::dist

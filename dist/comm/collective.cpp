#include "dist/comm/collective.h"

#include <vector>

#include "core/error.h"
#include "core/ops.h"

namespace sg::dist {
namespace {

constexpr Reduction ordered_sum{.scale = 1, .algorithm = Algorithm::ordered};

// Every rank's `elements`, one rank after another.
Shards equal_shards(int64_t elements, int ranks) {
  return Shards(std::vector<int64_t>(ranks, elements));
}

}  // namespace

Tensor CommCollective::all_reduce(const std::string& call, const Tensor& x) {
  const Tensor in = contiguous(x);
  Tensor out = empty_like(in);
  comm_.all_reduce({call, phase_}, in, out, ordered_sum).wait();
  return out;
}

Tensor CommCollective::all_gather(const std::string& call, const Tensor& x) {
  check(x.rank() > 0, "all_gather \"{}\": a tensor of at least one dimension is needed", call);
  const Tensor in = contiguous(x);
  Shape shape = x.shape();
  shape.set(0, x.size(0) * size());
  Tensor out = empty(shape, x.dtype(), x.device());
  comm_.all_gather({call, phase_}, in, equal_shards(in.numel(), size()), out).wait();
  return out;
}

Tensor CommCollective::reduce_scatter(const std::string& call, const Tensor& x) {
  check(x.rank() > 0 && x.size(0) % size() == 0,
        "reduce_scatter \"{}\": the first dimension of {} must be a multiple of the {} ranks",
        call,
        x.shape(),
        size());
  const Tensor in = contiguous(x);
  Shape shape = x.shape();
  shape.set(0, x.size(0) / size());
  Tensor out = empty(shape, x.dtype(), x.device());
  comm_.reduce_scatter({call, phase_}, in, equal_shards(out.numel(), size()), out, ordered_sum)
      .wait();
  return out;
}

}  // namespace sg::dist

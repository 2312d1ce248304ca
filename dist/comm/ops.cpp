// The collectives: what each checks, books, and makes of the transport's few moves.
#include <algorithm>

#include "core/error.h"
#include "dist/comm/comm.h"
#include "dist/comm/reduce.h"

namespace sg::dist {
namespace {

// Names a call in messages and checks what one rank can see of it.
struct Checker {
  const Call& call;
  Operation operation;
  const Comm& comm;

  template <class... Args>
  void operator()(bool ok, fmt::format_string<Args...> format, Args&&... args) const {
    if (ok)
      return;
    fail(ErrorKind::usage,
         "{} \"{}\": {}",
         name_of(operation),
         call.name,
         fmt::format(format, std::forward<Args>(args)...));
  }
  void tensor(const char* what, const Tensor& x, int64_t elements) const {
    (*this)(x.defined(), "{} is undefined", what);
    (*this)(x.device() == comm.device() || x.device().type == DeviceType::host,
            "{} lies on {}, this rank computes on {}",
            what,
            x.device(),
            comm.device());
    (*this)(x.contiguous(), "{} of shape {} must be dense", what, x.shape());
    (*this)(x.numel() == elements, "{} has {} elements, {} are needed", what, x.numel(), elements);
  }
  void rank(int rank) const {
    (*this)(rank >= 0 && rank < comm.size(), "no rank {} in a group of {}", rank, comm.size());
  }
  void shards(const Shards& shards) const {
    (*this)(shards.ranks() == comm.size(),
            "shards for {} ranks in a group of {}",
            shards.ranks(),
            comm.size());
  }
  // `part` may be at `place` in `whole` or apart from it.
  void overlap(const Tensor& whole, const Tensor& part, int64_t place) const {
    if (part.storage() != whole.storage())
      return;
    const int64_t begin = part.offset(), end = begin + part.numel(), first = whole.offset(),
                  last = first + whole.numel();
    const bool in_place = begin == first + place && part.dtype() == whole.dtype();
    (*this)(in_place || end <= first || begin >= last,
            "the result overlaps its input, but not at its own place in it");
  }
};

CommJob job_of(Operation operation, int64_t elements, DType dtype) {
  CommJob job;
  job.record.operation = operation;
  job.record.elements = elements;
  job.record.dtype = job.record.out_dtype = dtype;
  return job;
}

// rank p's range of a flat tensor, as pieces by rank
Pieces pieces_of(const Tensor& x, const Shards& shards) {
  Pieces pieces;
  for (int p = 0; p < shards.ranks(); ++p)
    pieces.push_back(piece_of(flat_range(x.view(), shards.offset(p), shards.count(p))));
  return pieces;
}

// What one rank sends to each and receives from each.
struct Exchange {
  explicit Exchange(int ranks) : send(ranks), receive(ranks) {}
  Pieces send;
  Pieces receive;
};

// Runs one exchange and books it; `tensors` are those whose memory it uses.
void set_exchange(CommJob& job, int rank, Exchange exchange, std::vector<Tensor> tensors) {
  job.tensors = std::move(tensors);
  job.traffic.calls = 1;
  for (int p = 0; p < std::ssize(exchange.send); ++p) {
    if (p == rank)
      continue;
    job.traffic.sent += exchange.send[p].bytes;
    job.traffic.received += exchange.receive[p].bytes;
  }
  job.run = [exchange = std::move(exchange)](Transport& transport, Watch& watch) {
    transport.exchange(exchange.send, exchange.receive, watch);
    return std::optional<NonFinite>();
  };
}

// gather and scatter: the whole lies at root, its shards at the ranks.
CommJob rooted(const Checker& must,
               const char* what,
               const Tensor& whole,
               const Shards& shards,
               const Tensor& shard,
               int root) {
  must.rank(root);
  must.shards(shards);
  const int rank = must.comm.rank();
  must.tensor("the shard", shard, shards.count(rank));
  Exchange exchange(shards.ranks());
  const bool gathers = must.operation == Operation::gather;
  Pieces& of_root = gathers ? exchange.receive : exchange.send;
  Pieces& to_root = gathers ? exchange.send : exchange.receive;
  to_root[root] = piece_of(shard.view());
  if (rank == root) {
    must.tensor(what, whole, shards.total());
    must(shard.dtype() == whole.dtype(),
         "a shard of {}, but {} of {}",
         name_of(shard.dtype()),
         what,
         name_of(whole.dtype()));
    must.overlap(whole, shard, shards.offset(rank));
    of_root = pieces_of(whole, shards);
  }
  CommJob job = job_of(must.operation, shards.total(), shard.dtype());
  job.record.root = root;
  job.record.layout = hash_of(shards);
  set_exchange(job, rank, std::move(exchange), {whole, shard});
  return job;
}

}  // namespace

CommJob Comm::reduction(const Call& call,
                        Operation operation,
                        const Tensor& in,
                        const Tensor& out,
                        const Shards& shards,
                        const Reduction& options) {
  const Checker must{call, operation, *this};
  const bool all = operation == Operation::all_reduce;
  const KernelTable& kernels = kernel_table(device());
  const char* type = name_of(in.dtype());
  must(in.dtype() == out.dtype() || out.dtype() == DType::f32,
       "the result of {} is {} or f32, not {}",
       type,
       type,
       name_of(out.dtype()));
  must(kernels.tree_sum[in.dtype()] != nullptr, "no sum of {} on {}", type, device());
  must(options.algorithm != Algorithm::native || in.dtype() == out.dtype(),
       "native sums of {} aren't given in {}",
       type,
       name_of(out.dtype()));
  CommJob job = job_of(operation, in.numel(), in.dtype());
  job.record.out_dtype = out.dtype();
  job.record.layout = hash_of(shards);
  job.record.algorithm = options.algorithm;
  job.record.scale = options.scale;
  const View from = flat_range(in.view(), 0, in.numel());
  const View to = flat_range(out.view(), 0, out.numel());
  const ReduceJob reduce{&kernels, from, to, shards, options.scale, all};
  const int n = size();
  job.traffic = traffic_of(reduce, options.algorithm, rank());
  job.messages = (options.algorithm == Algorithm::ring ? n - 1 : 1) * (all ? 2 : 1);
  if (n == 1 && options.scale == 1 && reduce.in_place()) {  // the sum is there already
    job.run = [](Transport&, Watch&) { return std::optional<NonFinite>(); };
    return job;
  }
  View ring;
  job.tensors = {in, out};
  if (options.algorithm == Algorithm::ring && n > 1) {
    job.tensors.push_back(ring_buffers(shards, in.dtype()));
    ring = retyped(job.tensors.back().view(), in.dtype());
  }
  job.run = [reduce, algorithm = options.algorithm, ring](Transport& transport, Watch& watch) {
    if (algorithm == Algorithm::ordered)
      return transport.reduce_ordered(reduce, watch);
    std::optional<NonFinite> found;
    if (!transport.moves_data())
      return found;
    if (const auto at = first_nonfinite(*reduce.kernels, reduce.in))
      found = NonFinite{transport.rank(), *at};
    if (algorithm == Algorithm::native)
      transport.reduce_native(reduce, watch);
    else
      reduce_ring(transport, reduce, ring, watch);
    return found;
  };
  return job;
}

// Taken where calls are made, so that books have them in the program's order; a larger one waits
// for the calls that still work in the smaller.
Tensor Comm::ring_buffers(const Shards& shards, DType dtype) {
  const int64_t bytes = 2 * shards.largest() * static_cast<int64_t>(size_of(dtype));
  if (!ring_.defined() || ring_.numel() < bytes) {
    shared_->stream.synchronize();
    ring_ = {};
    const CategoryScope category(Category::communication);
    ring_ = empty({bytes}, DType::u8);
  }
  return ring_;
}

Work Comm::all_reduce(const Call& call,
                      const Tensor& in,
                      const Tensor& out,
                      const Reduction& reduction) {
  const Checker must{call, Operation::all_reduce, *this};
  must.tensor("the input", in, in.defined() ? in.numel() : 0);
  must.tensor("the result", out, in.numel());
  must.overlap(in, out, 0);
  return issue(
      call,
      this->reduction(call, must.operation, in, out, Shards::even(in.numel(), size()), reduction));
}

Work Comm::all_reduce(const Call& call, const Tensor& inout, const Reduction& reduction) {
  return all_reduce(call, inout, inout, reduction);
}

Work Comm::reduce_scatter(const Call& call,
                          const Tensor& in,
                          const Shards& shards,
                          const Tensor& out,
                          const Reduction& reduction) {
  const Checker must{call, Operation::reduce_scatter, *this};
  must.shards(shards);
  must.tensor("the input", in, shards.total());
  must.tensor("the result", out, shards.count(rank()));
  must.overlap(in, out, shards.offset(rank()));
  return issue(call, this->reduction(call, must.operation, in, out, shards, reduction));
}

Work Comm::all_gather(const Call& call,
                      const Tensor& shard,
                      const Shards& shards,
                      const Tensor& out) {
  const Checker must{call, Operation::all_gather, *this};
  must.shards(shards);
  must.tensor("the shard", shard, shards.count(rank()));
  must.tensor("the result", out, shards.total());
  must(shard.dtype() == out.dtype(),
       "a shard of {} for a result of {}",
       name_of(shard.dtype()),
       name_of(out.dtype()));
  must.overlap(out, shard, shards.offset(rank()));
  CommJob job = job_of(must.operation, shards.total(), out.dtype());
  job.record.layout = hash_of(shards);
  Exchange exchange(size());
  std::fill(exchange.send.begin(), exchange.send.end(), piece_of(shard.view()));
  exchange.receive = pieces_of(out, shards);
  set_exchange(job, rank(), std::move(exchange), {shard, out});
  return issue(call, std::move(job));
}

Work Comm::broadcast(const Call& call, const Tensor& inout, int root) {
  const Checker must{call, Operation::broadcast, *this};
  must.rank(root);
  must.tensor("the tensor", inout, inout.defined() ? inout.numel() : 0);
  CommJob job = job_of(must.operation, inout.numel(), inout.dtype());
  job.record.root = root;
  Exchange exchange(size());
  const Piece whole = piece_of(inout.view());
  if (rank() == root) {
    std::fill(exchange.send.begin(), exchange.send.end(), whole);
    exchange.send[root] = {};
  } else {
    exchange.receive[root] = whole;
  }
  set_exchange(job, rank(), std::move(exchange), {inout});
  return issue(call, std::move(job));
}

Work Comm::gather(
    const Call& call, const Tensor& shard, const Shards& shards, const Tensor& out, int root) {
  const Checker must{call, Operation::gather, *this};
  return issue(call, rooted(must, "the result", out, shards, shard, root));
}

Work Comm::scatter(
    const Call& call, const Tensor& in, const Shards& shards, const Tensor& shard, int root) {
  const Checker must{call, Operation::scatter, *this};
  return issue(call, rooted(must, "the input", in, shards, shard, root));
}

Work Comm::all_to_all(const Call& call,
                      const Tensor& in,
                      const Shards& send,
                      const Tensor& out,
                      const Shards& receive) {
  const Checker must{call, Operation::all_to_all, *this};
  must.shards(send);
  must.shards(receive);
  must.tensor("the input", in, send.total());
  must.tensor("the result", out, receive.total());
  must(in.dtype() == out.dtype(),
       "an input of {} for a result of {}",
       name_of(in.dtype()),
       name_of(out.dtype()));
  must(in.storage() != out.storage() || in.numel() == 0 || out.numel() == 0,
       "input and result share their memory");
  must(send.count(rank()) == receive.count(rank()),
       "sends itself {} elements and expects {}",
       send.count(rank()),
       receive.count(rank()));
  CommJob job = job_of(must.operation, 0, in.dtype());
  Exchange exchange(size());
  exchange.send = pieces_of(in, send);
  exchange.receive = pieces_of(out, receive);
  set_exchange(job, rank(), std::move(exchange), {in, out});
  return issue(call, std::move(job));
}

Work Comm::send(const Call& call, const Tensor& x, int to) {
  const Checker must{call, Operation::send, *this};
  must.rank(to);
  must(to != rank(), "rank {} sends to itself", to);
  must.tensor("the tensor", x, x.defined() ? x.numel() : 0);
  CommJob job = job_of(must.operation, x.numel(), x.dtype());
  job.record.peer = to;
  Exchange exchange(size());
  exchange.send[to] = piece_of(x.view());
  set_exchange(job, rank(), std::move(exchange), {x});
  return issue(call, std::move(job));
}

Work Comm::recv(const Call& call, const Tensor& x, int from) {
  const Checker must{call, Operation::recv, *this};
  must.rank(from);
  must(from != rank(), "rank {} receives from itself", from);
  must.tensor("the tensor", x, x.defined() ? x.numel() : 0);
  CommJob job = job_of(must.operation, x.numel(), x.dtype());
  job.record.peer = from;
  Exchange exchange(size());
  exchange.receive[from] = piece_of(x.view());
  set_exchange(job, rank(), std::move(exchange), {x});
  return issue(call, std::move(job));
}

}  // namespace sg::dist

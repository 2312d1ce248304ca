// Every operation of a group on known values: what thread ranks and MPI processes must both give,
// bit for bit.
#pragma once
#include <cstring>
#include <string>
#include <vector>

#include "core/ops.h"
#include "dist/comm/comm.h"

namespace sg::dist::cases {

inline constexpr DType float_types[] = {DType::f32, DType::f64, DType::f16, DType::bf16};

// Element i of rank r's contribution: of mixed magnitude and sign, so that the order of a sum shows
// in its bits.
inline double value(int rank, int64_t i) {
  uint64_t x = static_cast<uint64_t>(i) * 0x9E3779B97F4A7C15ull +
               static_cast<uint64_t>(rank + 1) * 0xBF58476D1CE4E5B9ull;
  x ^= x >> 31, x *= 0x94D049BB133111EBull, x ^= x >> 29;
  const double unit = static_cast<double>(x >> 11) / 9007199254740992.0 - 0.5;
  return unit * (x % 3 == 0 ? 100.0 : 1.0);
}

inline Tensor contribution(int rank, int64_t n, DType dtype) {
  std::vector<double> values;
  for (int64_t i = 0; i < n; ++i)
    values.push_back(value(rank, i));
  return cast(from_vector(values), dtype);
}

// FNV-1a of the bytes, in hex.
inline std::string digest(const Tensor& x) {
  uint64_t hash = 14695981039346656037ull;
  const auto* bytes = static_cast<const unsigned char*>(x.view().data);
  for (uint64_t i = 0; i < x.bytes(); ++i)
    hash = (hash ^ bytes[i]) * 1099511628211ull;
  return fmt::format("{:016x}", hash);
}

// Even, all of it one rank's, and uneven with an empty shard.
inline std::vector<Shards> layouts(int64_t n, int ranks) {
  std::vector<Shards> all{Shards::even(n, ranks), Shards::whole(n, ranks, ranks - 1)};
  std::vector<int64_t> counts(static_cast<size_t>(ranks), 0);
  counts[0] = n / 3, counts.back() += n - n / 3;
  all.push_back(Shards(counts));
  return all;
}

// A line per result: "all_reduce bf16 1000 ring: <digest>".
inline std::vector<std::string> reductions(Comm& comm, Algorithm algorithm) {
  std::vector<std::string> lines;
  const auto add = [&](const char* what, const Tensor& in, const Tensor& out) {
    lines.push_back(fmt::format("{} {} {} {} to {}: {}",
                                what,
                                name_of(algorithm),
                                in.numel(),
                                name_of(in.dtype()),
                                name_of(out.dtype()),
                                digest(out)));
  };
  const Reduction mean{1.0f / static_cast<float>(comm.size()), algorithm};
  for (const DType dtype : float_types) {
    for (const int64_t n : {int64_t{0}, int64_t{1}, int64_t{1000}, int64_t{200'003}}) {
      const Tensor in = contribution(comm.rank(), n, dtype), inout = clone(in);
      comm.all_reduce({"cases.all_reduce"}, inout, mean).wait();
      add("all_reduce", in, inout);
      const DType wide = dtype == DType::f64 || algorithm == Algorithm::native ? dtype : DType::f32;
      const Tensor out = empty({n}, wide);
      comm.all_reduce({"cases.all_reduce"}, in, out, {1, algorithm}).wait();
      add("all_reduce", in, out);
      for (const Shards& shards : layouts(n, comm.size())) {
        const Tensor whole = clone(in), shard = shards.of(whole, comm.rank());
        comm.reduce_scatter({"cases.reduce_scatter"}, whole, shards, shard, mean).wait();
        add("reduce_scatter", in, shard);
      }
    }
  }
  return lines;
}

inline std::vector<std::string> moves(Comm& comm) {
  std::vector<std::string> lines;
  const int rank = comm.rank(), ranks = comm.size();
  const auto add = [&](const char* what, const Tensor& x) {
    lines.push_back(fmt::format("{}: {}", what, digest(x)));
  };
  for (const int64_t n : {int64_t{0}, int64_t{7}, int64_t{100'001}}) {
    for (const Shards& shards : layouts(n, ranks)) {
      const Tensor all = contribution(rank, n, DType::f32), out = zeros({n});
      const Tensor own = clone(shards.of(all, rank)), shard = empty({shards.count(rank)});
      comm.all_gather({"cases.all_gather"}, own, shards, out).wait();
      add("all_gather", out);
      comm.gather({"cases.gather"}, own, shards, rank == ranks - 1 ? all : Tensor(), ranks - 1)
          .wait();
      add("gather", all);
      comm.scatter({"cases.scatter"}, rank == 0 ? out : Tensor(), shards, shard, 0).wait();
      add("scatter", shard);
    }
    const Tensor x = contribution(rank, n, DType::bf16);
    comm.broadcast({"cases.broadcast"}, x, ranks - 1).wait();
    add("broadcast", x);
    // Rank a sends a + p + 1 elements to rank p.
    std::vector<int64_t> counts;
    for (int p = 0; p < ranks; ++p)
      counts.push_back(rank + p + 1);
    const Shards both(counts);
    const Tensor swapped = empty({both.total()}, DType::f64);
    comm.all_to_all(
            {"cases.all_to_all"}, contribution(rank, both.total(), DType::f64), both, swapped, both)
        .wait();
    add("all_to_all", swapped);
    const Tensor message = contribution(rank, n + 1, DType::f16);
    if (rank > 0)
      comm.recv({"cases.message"}, message, rank - 1).wait();
    if (rank < ranks - 1)
      comm.send({"cases.message"}, message, rank + 1).wait();
    add("message", message);
    comm.barrier({"cases.barrier"}).wait();
  }
  for (const std::string& text : comm.all_gather_bytes(
           {"cases.bytes", Phase::metrics}, std::string(static_cast<size_t>(rank) * 3, 'x'))) {
    lines.push_back("bytes: " + text);
  }
  return lines;
}

}  // namespace sg::dist::cases

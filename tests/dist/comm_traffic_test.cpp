// The ledger against the formulas of the numerics, to the byte.
#include <gtest/gtest.h>

#include "dist/launch.h"
#include "tests/dist/comm_cases.h"

namespace sg::dist {
namespace {

constexpr int64_t n = 1003;

void expect_traffic(Comm& comm, Operation operation, uint64_t sent, uint64_t received) {
  const Traffic traffic = comm.traffic().of(operation, Phase::step);
  EXPECT_EQ(traffic.sent, sent) << name_of(operation) << " on rank " << comm.rank() << " of "
                                << comm.size();
  EXPECT_EQ(traffic.received, received)
      << name_of(operation) << " on rank " << comm.rank() << " of " << comm.size();
  EXPECT_EQ(traffic.calls, 1u);
  EXPECT_EQ(traffic.padding, 0u);
  comm.traffic().reset();
}

TEST(Traffic, ReductionsFollowTheirFormulas) {
  for (int ranks = 2; ranks <= 4; ++ranks) {
    run_threads(ranks, [&](Comm& comm) {
      const int rank = comm.rank();
      const auto others = static_cast<int64_t>(ranks - 1);
      const Tensor in = cases::contribution(rank, n, DType::bf16), out = empty({n}, DType::bf16);
      const Shards even = Shards::even(n, ranks);
      comm.all_reduce({"test"}, in, out).wait();
      const auto both = static_cast<uint64_t>(2 * (n + (others - 1) * even.count(rank)));
      expect_traffic(comm, Operation::all_reduce, both, both);
      for (const Shards& shards : cases::layouts(n, ranks)) {
        const int64_t own = shards.count(rank);
        const auto rest = static_cast<uint64_t>(2 * (n - own)),
                   mine = static_cast<uint64_t>(2 * others * own);
        const Tensor shard = empty({own}, DType::bf16);
        comm.reduce_scatter({"test"}, in, shards, shard).wait();
        expect_traffic(comm, Operation::reduce_scatter, rest, mine);
        comm.all_gather({"test"}, shard, shards, out).wait();
        expect_traffic(comm, Operation::all_gather, mine, rest);
      }
      // The ring: all blocks but r + 1, then all but r + 2.
      comm.all_reduce({"test"}, in, out, {1, Algorithm::ring}).wait();
      const auto block = [&](int b) { return even.count((rank + b + ranks) % ranks); };
      expect_traffic(comm,
                     Operation::all_reduce,
                     static_cast<uint64_t>(2 * (2 * n - block(1) - block(2))),
                     static_cast<uint64_t>(2 * (2 * n - block(0) - block(1))));
      comm.reduce_scatter(
              {"test"}, in, even, empty({even.count(rank)}, DType::bf16), {1, Algorithm::ring})
          .wait();
      expect_traffic(comm,
                     Operation::reduce_scatter,
                     static_cast<uint64_t>(2 * (n - block(0))),
                     static_cast<uint64_t>(2 * (n - block(-1))));
    });
  }
}

TEST(Traffic, ResultsInF32TravelAsF32) {
  run_threads(2, [](Comm& comm) {
    comm.all_reduce({"test"}, cases::contribution(comm.rank(), 10, DType::bf16), empty({10}))
        .wait();
    expect_traffic(comm, Operation::all_reduce, 5 * 2 + 5 * 4, 5 * 2 + 5 * 4);
  });
}

TEST(Traffic, RootsMoveWhatTheyMust) {
  run_threads(3, [](Comm& comm) {
    const bool root = comm.rank() == 0;
    const Tensor x = zeros({n}), shard = zeros({comm.rank() + 1}), all = zeros({6});
    const Shards shards({1, 2, 3});
    const uint64_t own = shard.bytes(), rest = all.bytes() - own;
    comm.broadcast({"test"}, x, 0).wait();
    expect_traffic(comm, Operation::broadcast, root ? 2 * x.bytes() : 0, root ? 0 : x.bytes());
    comm.gather({"test"}, shard, shards, all, 0).wait();
    expect_traffic(comm, Operation::gather, root ? 0 : own, root ? rest : 0);
    comm.scatter({"test"}, all, shards, shard, 0).wait();
    expect_traffic(comm, Operation::scatter, root ? rest : 0, root ? 0 : own);
    comm.barrier({"test"}).wait();
    expect_traffic(comm, Operation::barrier, 0, 0);
    comm.all_gather_bytes({"test"}, std::string(static_cast<size_t>(comm.rank()), 'x'));
    const auto length = static_cast<uint64_t>(comm.rank());
    expect_traffic(comm, Operation::all_gather, 2 * (8 + length), 16 + 3 - length);
  });
}

TEST(Traffic, SendersAndReceiversAgree) {
  run_threads(2, [](Comm& comm) {
    const Tensor x = zeros({5});
    if (comm.rank() == 0)
      comm.send({"test"}, x, 1).wait();
    else
      comm.recv({"test"}, x, 0).wait();
    expect_traffic(comm,
                   comm.rank() == 0 ? Operation::send : Operation::recv,
                   comm.rank() == 0 ? 20 : 0,
                   comm.rank() == 0 ? 0 : 20);
  });
}

TEST(Traffic, OneRankMovesNothing) {
  run_threads(1, [](Comm& comm) {
    cases::reductions(comm, Algorithm::ordered);
    cases::reductions(comm, Algorithm::ring);
    cases::moves(comm);
    for (int phase = 0; phase < phase_count; ++phase) {
      const Traffic total = comm.traffic().total(static_cast<Phase>(phase));
      EXPECT_EQ(total.sent + total.received + total.padding, 0u);
    }
    EXPECT_GT(comm.traffic().of(Operation::all_reduce, Phase::step).calls, 0u);
  });
}

TEST(Traffic, ComparisonsAreBookedApart) {
  run_threads(2, [](Comm& comm) {
    comm.barrier({"test"}).wait();
    const Traffic check = comm.traffic().of(Operation::barrier, Phase::check);
    EXPECT_EQ(check, (Traffic{1, 128, 128, 0}));
  });
}

TEST(Traffic, AnEmulatedLinkTakesItsTime) {
  CommOptions options;
  options.ranks = 2;
  options.link_bandwidth = 1e6;
  options.link_latency = 0.002;
  run_threads(options, [](Comm& comm) {
    const Tensor x = zeros({5000});  // 10,000 bytes each way in each of two phases
    Work work = comm.all_reduce({"test"}, x);
    work.wait();
    EXPECT_GE(work.seconds(), 0.024);
    EXPECT_GE(comm.traffic().busy_seconds(), 0.024);
    EXPECT_GT(comm.traffic().exposed_seconds(), 0);
  });
}

}  // namespace
}  // namespace sg::dist

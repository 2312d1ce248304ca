// What the operations give, on thread ranks.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "core/stream.h"
#include "dist/comm/reduce.h"
#include "dist/launch.h"
#include "tests/dist/comm_cases.h"

namespace sg::dist {
namespace {

std::vector<int64_t> counts_of(const Shards& shards) {
  std::vector<int64_t> counts;
  for (int rank = 0; rank < shards.ranks(); ++rank)
    counts.push_back(shards.count(rank));
  return counts;
}

TEST(Shards, AreEqualWithinAChunkAndOddChunksStartWhereAsked) {
  EXPECT_EQ(counts_of(Shards::even(10, 3)), (std::vector<int64_t>{4, 3, 3}));
  EXPECT_EQ(counts_of(Shards::even(10, 3, 4)), (std::vector<int64_t>{4, 4, 2}));
  EXPECT_EQ(counts_of(Shards::even(10, 3, 1, 2)), (std::vector<int64_t>{3, 3, 4}));
  EXPECT_EQ(counts_of(Shards::even(5, 4, 4, 3)), (std::vector<int64_t>{4, 0, 0, 1}));
  EXPECT_EQ(counts_of(Shards::even(0, 2)), (std::vector<int64_t>{0, 0}));
  EXPECT_EQ(counts_of(Shards::whole(9, 3, 1)), (std::vector<int64_t>{0, 9, 0}));
  EXPECT_EQ(Shards::even(10, 3).offset(2), 7);
}

// Rule 3 of the numerics, in plain loops: adjacent pairs, an odd last one carried up.
template <class T>
T tree(std::vector<T> level) {
  while (level.size() > 1) {
    std::vector<T> sums;
    for (size_t i = 0; i + 1 < level.size(); i += 2)
      sums.push_back(level[i] + level[i + 1]);
    if (level.size() % 2)
      sums.push_back(level.back());
    level = sums;
  }
  return level[0];
}

Tensor reference_sum(int ranks, int64_t n, DType dtype, float scale, DType out) {
  if (dtype == DType::f64) {
    std::vector<double> sums;
    for (int64_t i = 0; i < n; ++i) {
      std::vector<double> terms;
      for (int rank = 0; rank < ranks; ++rank)
        terms.push_back(cases::value(rank, i));
      sums.push_back(tree(terms) * static_cast<double>(scale));
    }
    return cast(from_vector(sums), out);
  }
  std::vector<std::vector<float>> values;
  for (int rank = 0; rank < ranks; ++rank) {
    values.push_back(cast(cases::contribution(rank, n, dtype), DType::f32).to_vector<float>());
  }
  std::vector<float> sums;
  for (int64_t i = 0; i < n; ++i) {
    std::vector<float> terms;
    for (const auto& of_rank : values)
      terms.push_back(of_rank[static_cast<size_t>(i)]);
    sums.push_back(tree(terms) * scale);
  }
  return cast(from_vector(sums), out);
}

TEST(Comm, OrderedReductionsAreTheTreeInRankOrder) {
  for (int ranks = 1; ranks <= 4; ++ranks) {
    for (const DType dtype : cases::float_types) {
      const int64_t n = 20'011;
      const float scale = 1.0f / static_cast<float>(ranks);
      const Tensor expected = reference_sum(ranks, n, dtype, scale, dtype);
      run_threads(ranks, [&](Comm& comm) {
        const Tensor in = cases::contribution(comm.rank(), n, dtype), inout = clone(in);
        comm.all_reduce({"test"}, inout, {scale}).wait();
        EXPECT_EQ(cases::digest(inout), cases::digest(expected))
            << name_of(dtype) << " over " << ranks;
        for (const Shards& shards : cases::layouts(n, ranks)) {
          const Tensor shard = empty({shards.count(comm.rank())}, dtype);
          comm.reduce_scatter({"test"}, in, shards, shard, {scale}).wait();
          EXPECT_EQ(cases::digest(shard),
                    cases::digest(contiguous(shards.of(expected, comm.rank()))));
        }
      });
    }
  }
}

TEST(Comm, ResultsInF32AreNotRounded) {
  const Tensor expected = reference_sum(3, 999, DType::bf16, 1, DType::f32);
  run_threads(3, [&](Comm& comm) {
    const Tensor out = empty({999});
    comm.all_reduce({"test"}, cases::contribution(comm.rank(), 999, DType::bf16), out).wait();
    EXPECT_EQ(cases::digest(out), cases::digest(expected));
  });
}

TEST(Comm, RingAndNativeSumsAreClose) {
  for (int ranks = 1; ranks <= 4; ++ranks) {
    const auto expected =
        reference_sum(ranks, 1003, DType::f32, 0.5f, DType::f32).to_vector<float>();
    for (const Algorithm algorithm : {Algorithm::ring, Algorithm::native}) {
      run_threads(ranks, [&](Comm& comm) {
        const Tensor in = cases::contribution(comm.rank(), 1003, DType::f32), out = empty({1003});
        comm.all_reduce({"test"}, in, out, {0.5f, algorithm}).wait();
        const auto values = out.to_vector<float>();
        for (size_t i = 0; i < values.size(); ++i)
          ASSERT_NEAR(values[i], expected[i], 1e-4);
        for (const Shards& shards : cases::layouts(1003, ranks)) {
          const Tensor shard = empty({shards.count(comm.rank())});
          comm.reduce_scatter({"test"}, in, shards, shard, {0.5f, algorithm}).wait();
          const auto part = shard.to_vector<float>();
          for (size_t i = 0; i < part.size(); ++i) {
            ASSERT_NEAR(
                part[i], expected[i + static_cast<size_t>(shards.offset(comm.rank()))], 1e-4);
          }
        }
      });
    }
  }
}

// Three ranks, blocks A, B, C: after the first phase rank 0 holds the sum of B, rank 1 of C, rank 2
// of A; then all hold all.
TEST(Ring, FollowsTheTextbook) {
  const int ends[] = {1, 2, 0};
  for (int rank = 0; rank < 3; ++rank) {
    const auto steps = ring_steps(rank, 3, true);
    ASSERT_EQ(steps.size(), 4u);
    EXPECT_EQ(steps[0].send, rank);
    EXPECT_EQ(steps[1].receive, ends[rank]);
    EXPECT_EQ(steps[1].phase, RingStep::Phase::scatter_reduce);
    EXPECT_EQ(steps[2].send, ends[rank]);
    std::set<int> held{ends[rank], steps[2].receive, steps[3].receive};
    EXPECT_EQ(held.size(), 3u);
    EXPECT_EQ(ring_steps(rank, 3, false).back().receive, rank)
        << "a reduce-scatter ends with the rank's own shard";
    const int next = (rank + 1) % 3;
    for (size_t s = 0; s < 4; ++s)
      EXPECT_EQ(steps[s].send, ring_steps(next, 3, true)[s].receive);
  }
}

TEST(Comm, MovesBringEachPieceToItsPlace) {
  run_threads(3, [](Comm& comm) {
    const int rank = comm.rank();
    const Shards shards({2, 0, 3});
    const Tensor out = zeros({5}), shard = full({shards.count(rank)}, rank + 1);
    comm.all_gather({"gather"}, shard, shards, out).wait();
    EXPECT_EQ(out.to_vector<float>(), (std::vector<float>{1, 1, 3, 3, 3}));
    const Tensor mine = full({3}, rank), theirs = empty({3});
    comm.all_to_all({"swap"}, mine, Shards({1, 1, 1}), theirs, Shards({1, 1, 1})).wait();
    EXPECT_EQ(theirs.to_vector<float>(), (std::vector<float>{0, 1, 2}));
    const Tensor x = full({2}, rank);
    comm.broadcast({"root"}, x, 1).wait();
    EXPECT_EQ(x.to_vector<float>(), (std::vector<float>{1, 1}));
    EXPECT_EQ(comm.all_gather_bytes({"text"}, std::string(static_cast<size_t>(rank), 'a')),
              (std::vector<std::string>{"", "a", "aa"}));
  });
}

TEST(Comm, WorkRunsWhileItsCallerGoesOn) {
  run_threads(2, [](Comm& comm) {
    const Tensor x = full({1000}, comm.rank() + 1);
    Work work = comm.all_reduce({"test"}, x);
    int actions = 0;
    work.then([&] { ++actions; });
    EXPECT_EQ(actions, 0);
    work.wait();
    work.wait();
    EXPECT_EQ(actions, 1);
    EXPECT_TRUE(work.done());
    EXPECT_EQ(x.to_vector<float>()[999], 3);
    EXPECT_GT(work.seconds(), 0);
  });
}

void expect_culprit_named(DType dtype, int culprit) {
  run_threads(3, [&](Comm& comm) {
    const int64_t n = 30'000, at = 20'123;  // rank 2's shard of an all-reduce
    const Tensor in = cases::contribution(comm.rank(), n, dtype), out = empty({n}, dtype);
    if (comm.rank() == culprit)
      fill_(in.slice(0, at, at + 1), std::numeric_limits<double>::infinity());
    const auto found = [&](Algorithm algorithm) {
      Work work = comm.all_reduce({"test"}, in, out, {1, algorithm});
      work.wait();
      return work.nonfinite();
    };
    const auto ordered = found(Algorithm::ordered);
    ASSERT_EQ(ordered.has_value(), comm.rank() == 2) << name_of(dtype);
    if (ordered) {
      EXPECT_EQ(std::pair(ordered->rank, ordered->offset), std::pair(culprit, at));
    }
    for (const Algorithm algorithm : {Algorithm::ring, Algorithm::native}) {
      const auto own = found(algorithm);
      ASSERT_EQ(own.has_value(), comm.rank() == culprit);
      if (own) {
        EXPECT_EQ(std::pair(own->rank, own->offset), std::pair(culprit, at));
      }
    }
  });
}

TEST(Comm, NonFiniteContributionsAreNamed) {
  for (const DType dtype : cases::float_types)
    for (const int culprit : {0, 1, 2})
      expect_culprit_named(dtype, culprit);
  run_threads(2, [](Comm& comm) {
    Work work = comm.all_reduce({"overflow"}, full({2}, 60'000, DType::f16));
    work.wait();
    ASSERT_TRUE(work.nonfinite());
    EXPECT_EQ(work.nonfinite()->rank, -1);
  });
}

TEST(Comm, SplitsByColourOrderedByKey) {
  run_threads(4, [](Comm& comm) {
    const auto part = comm.split(comm.rank() % 2, -comm.rank());
    EXPECT_EQ(part->size(), 2);
    EXPECT_EQ(part->rank(), comm.rank() < 2 ? 1 : 0);
    const Tensor x = full({3}, comm.rank());
    part->all_reduce({"part"}, x).wait();
    EXPECT_EQ(x.to_vector<float>()[0], comm.rank() % 2 ? 4 : 2);
    const auto alone = part->split(part->rank(), 0);
    EXPECT_EQ(alone->size(), 1);
    comm.barrier({"all"}).wait();
  });
}

// Queues that run only when something waits, in a random order: a wait that the group needs and
// nobody makes would show.
TEST(Comm, LazyStreamsGiveTheSameBits) {
  std::vector<std::string> expected(3);
  const auto all = [](Comm& comm) {
    const Tensor a = cases::contribution(comm.rank(), 5000, DType::f32), b = empty({5000}),
                 c = empty({5000});
    Work first = comm.all_reduce({"a"}, a, b);
    Work second = comm.all_reduce({"b"}, b, c, {0.5f, Algorithm::ring});
    second.wait();
    first.wait();
    return cases::digest(c);
  };
  run_threads(3, [&](Comm& comm) { expected[static_cast<size_t>(comm.rank())] = all(comm); });
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    set_lazy_streams(true, seed);
    run_threads(
        3, [&](Comm& comm) { EXPECT_EQ(all(comm), expected[static_cast<size_t>(comm.rank())]); });
    set_lazy_streams(false);
  }
}

TEST(Comm, MisuseIsRefusedAtOnce) {
  run_threads(1, [](Comm& comm) {
    const auto refused = [](const std::string& text, const std::function<void()>& call) {
      try {
        call();
        ADD_FAILURE() << "not refused: " << text;
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::usage);
        EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
      }
    };
    const Tensor x = zeros({4}), half = zeros({4}, DType::bf16), integers = zeros({4}, DType::i32);
    refused("all_reduce \"sum\": no sum of i32", [&] { comm.all_reduce({"sum"}, integers); });
    refused("has 3 elements, 4 are needed", [&] { comm.all_reduce({"sum"}, x, zeros({3})); });
    refused("is f32 or f32, not bf16", [&] { comm.all_reduce({"sum"}, x, half); });
    refused("must be dense", [&] { comm.broadcast({"x"}, zeros({2, 2}).transposed(), 0); });
    refused("no rank 1 in a group of 1", [&] { comm.broadcast({"x"}, x, 1); });
    refused("shards for 2 ranks in a group of 1", [&] {
      comm.all_gather({"x"}, x, Shards({2, 2}), x);
    });
    refused("sends to itself", [&] { comm.send({"x"}, x, 0); });
    refused("overlaps", [&] { comm.all_reduce({"x"}, x.slice(0, 0, 3), x.slice(0, 1, 4)); });
  });
}

}  // namespace
}  // namespace sg::dist

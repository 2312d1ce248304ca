// A group that is used in ways nobody thinks of first: groups of one, nothing to send, results
// asked for twice, groups that end before their calls or live longer than a failure.
#include <gtest/gtest.h>

#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "core/ops.h"
#include "dist/comm/comm.h"
#include "dist/launch.h"
#include "tests/errors.h"

namespace sg::dist {
namespace {

constexpr int64_t most = std::numeric_limits<int64_t>::max();

float first(const Tensor& x) {
  return x.to_vector<float>()[0];
}

TEST(CommMisuse, WaitingTwiceGivesTheSameTwice) {
  run_threads(2, [](Comm& comm) {
    const Tensor x = full({4}, 1);
    int actions = 0;
    Work work = comm.all_reduce({"sum"}, x);
    work.then([&] { ++actions; });
    work.wait();
    work.wait();
    Work copy = work;
    copy.wait();
    EXPECT_EQ(first(x), 2);
    EXPECT_EQ(actions, 1);
    Work none;
    none.wait();
    EXPECT_TRUE(none.done());
  });
}

TEST(CommMisuse, AnErrorIsThrownAtEveryWait) {
  const auto told = test::error_of(ErrorKind::bad_input, [] {
    run_threads(2, [](Comm& comm) {
      if (comm.rank() == 1)
        fail(ErrorKind::bad_input, "the data file is empty");
      Work work = comm.barrier({"never"});
      for (int i = 0; i < 2; ++i) {
        const auto message = test::error_of(ErrorKind::peer, [&] { work.wait(); });
        EXPECT_NE(message.find("the data file is empty"), std::string::npos) << message;
      }
    });
  });
  EXPECT_NE(told.find("the data file is empty"), std::string::npos) << told;
}

TEST(CommMisuse, AGroupThatEndsWaitsForItsCallsWhichOutliveIt) {
  run_threads(3, [](Comm& comm) {
    const Tensor x = full({100'000}, 1);
    std::vector<Work> works;
    {
      const auto part = comm.split(0, 0);
      for (int i = 0; i < 3; ++i)
        works.push_back(part->all_reduce({"sum"}, x));
    }
    for (Work& work : works) {
      EXPECT_TRUE(work.done());
      work.wait();
    }
    EXPECT_EQ(first(x), 27);
    comm.all_reduce({"world"}, x).wait();  // the world goes on
    EXPECT_EQ(first(x), 81);
  });
}

TEST(CommMisuse, AGroupOfOneCanDoAllThatNeedsNoOtherRank) {
  run_threads(2, [](Comm& comm) {
    const auto alone = comm.split(comm.rank(), 7);
    ASSERT_EQ(alone->size(), 1);
    const Shards all({5});
    const Tensor x = full({5}, 3), y = zeros({5});
    for (const auto algorithm : {Algorithm::ordered, Algorithm::ring, Algorithm::native})
      alone->all_reduce({"sum"}, x, {1, algorithm}).wait();
    alone->reduce_scatter({"scatter"}, x, all, y).wait();
    alone->all_gather({"gather"}, y, all, x).wait();
    alone->broadcast({"broadcast"}, x, 0).wait();
    alone->gather({"to root"}, x, all, y, 0).wait();
    alone->scatter({"from root"}, x, all, y, 0).wait();
    alone->all_to_all({"swap"}, x, all, y, all).wait();
    alone->barrier({"end"}).wait();
    EXPECT_EQ(first(y), 3);
    EXPECT_EQ(alone->all_gather_bytes({"bytes"}, "self"), std::vector<std::string>{"self"});
    alone->agree({"start"}, {{"seed", std::to_string(comm.rank())}});  // nobody else is asked
    const auto message = test::error_of(ErrorKind::usage, [&] { alone->send({"x"}, x, 1); });
    EXPECT_NE(message.find("no rank 1 in a group of 1"), std::string::npos) << message;
  });
}

TEST(CommMisuse, NothingCanBeSentAnywhere) {
  run_threads(2, [](Comm& comm) {
    const Tensor nothing = zeros({0, 3});
    const Shards none({0, 0});
    const int other = 1 - comm.rank();
    for (const auto algorithm : {Algorithm::ordered, Algorithm::ring, Algorithm::native}) {
      comm.all_reduce({"sum"}, nothing, {1, algorithm}).wait();
      comm.reduce_scatter({"scatter"}, nothing, none, nothing, {1, algorithm}).wait();
    }
    comm.all_to_all({"swap"}, nothing, none, nothing, none).wait();
    comm.broadcast({"broadcast"}, nothing, 1).wait();
    (comm.rank() == 0 ? comm.send({"message"}, nothing, other)
                      : comm.recv({"message"}, nothing, other))
        .wait();
    EXPECT_EQ(comm.all_gather_bytes({"bytes"}, ""), std::vector<std::string>(2));
  });
}

TEST(CommMisuse, GroupsOfAFailedWorldNameTheFirstFailure) {
  test::error_of(ErrorKind::bad_input, [] {
    run_threads(3, [](Comm& comm) {
      const auto part = comm.split(comm.rank() < 2 ? 0 : 1, 0);
      if (comm.rank() == 2)
        fail(ErrorKind::bad_input, "the data file is empty");
      const Tensor x = zeros({8});
      test::error_of(ErrorKind::peer, [&] { comm.barrier({"wait"}).wait(); });
      for (Comm* group : {part.get(), &comm}) {
        const auto message =
            test::error_of(ErrorKind::peer, [&] { group->all_reduce({"later"}, x).wait(); });
        EXPECT_NE(message.find("the data file is empty"), std::string::npos) << message;
      }
      const auto message = test::error_of(ErrorKind::peer, [&] { comm.split(0, 0); });
      EXPECT_NE(message.find("the data file is empty"), std::string::npos) << message;
    });
  });
}

// What a run says of its devices is theirs while it lasts, on every rank, and no longer.
TEST(CommMisuse, OptionsOfDevicesHoldForAllRanksUntilTheRunEnds) {
  run_threads(2, [](Comm& comm) { threads(comm.device()); });  // their threads are settled
  CommOptions on;
  on.ranks = 2;
  on.device.capacity = 1 << 20;
  run_threads(on, [](Comm& comm) {
    EXPECT_EQ(pool(comm.device()).capacity(), uint64_t{1} << 20);
    EXPECT_THROW(empty({1 << 20}, DType::f32), OutOfMemory);
  });
  for (const Device device : {cpu(0), cpu(1)})
    EXPECT_EQ(pool(device).capacity(), Pool::unlimited);
  on.device.threads = threads(cpu(0)) + 1;
  const std::string message =
      test::error_of(ErrorKind::usage, [&] { run_threads(on, [](Comm&) {}); });
  EXPECT_NE(message.find("already runs with"), std::string::npos) << message;
  for (const Device device : {cpu(0), cpu(1)})
    EXPECT_EQ(pool(device).capacity(), Pool::unlimited) << "of a run that was refused";
}

TEST(CommMisuse, CountsBeyondWhatANumberHoldsAreRefused) {
  test::error_of(ErrorKind::usage, [] { Shards({most, 1}); });
  test::error_of(ErrorKind::usage, [] { Shards({most / 2, most / 2, most / 2}); });
  test::error_of(ErrorKind::usage, [] { Shards({1, -1}); });
  EXPECT_EQ(Shards::even(most, 3).total(), most);
  EXPECT_EQ(Shards::even(most, 3, most - 1).total(), most);
  EXPECT_EQ(Shards::even(most - 7, 2, 1 << 20, 1).total(), most - 7);
}

}  // namespace
}  // namespace sg::dist

// A fault names its cause: thread ranks that fail, stop, or make different calls.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "core/ops.h"
#include "dist/launch.h"

namespace sg::dist {
namespace {

// The message of the error that ends the ranks; it must hold all of `parts`.
void expect_failure(const CommOptions& options,
                    const std::vector<std::string>& parts,
                    const std::function<void(Comm&)>& fn,
                    ErrorKind kind = ErrorKind::peer) {
  try {
    run_threads(options, fn);
    ADD_FAILURE() << "no rank failed";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    for (const std::string& part : parts) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos)
          << part << " in: " << error.what();
    }
  }
}

CommOptions ranks(int n, double timeout = 60) {
  CommOptions options;
  options.ranks = n;
  options.timeout = timeout;
  return options;
}

TEST(Faults, TheErrorOfARankThatThrowsSurvives) {
  expect_failure(
      ranks(3),
      {"the data file is empty"},
      [](Comm& comm) {
        const Tensor x = zeros({100});
        comm.all_reduce({"first"}, x).wait();
        if (comm.rank() == 1)
          fail(ErrorKind::bad_input, "the data file is empty");
        comm.all_reduce({"second"}, x).wait();
        ADD_FAILURE() << "a collective without rank 1 has ended";
      },
      ErrorKind::bad_input);
}

TEST(Faults, PeersOfARankThatThrowsAreTold) {
  std::string told;
  EXPECT_THROW(run_threads(2,
                           [&](Comm& comm) {
                             if (comm.rank() == 1)
                               throw std::runtime_error("broken");
                             try {
                               comm.barrier({"wait"}).wait();
                             } catch (const Error& error) {
                               told = error.what();
                               throw;
                             }
                           }),
               std::runtime_error);
  EXPECT_NE(told.find("barrier \"wait\" on rank 0, call #0: rank 1 failed: broken"),
            std::string::npos)
      << told;
}

TEST(Faults, DifferentCallsAreNamed) {
  const auto x = [](int64_t elements, DType dtype = DType::f32) {
    return zeros({elements}, dtype);
  };
  expect_failure(ranks(3),
                 {"operation differs",
                  "makes call #0, all_reduce \"grad\" of 8 f32",
                  "rank 2 makes call #0, broadcast \"grad\" of 8 f32"},
                 [&](Comm& comm) {
                   if (comm.rank() == 2)
                     comm.broadcast({"grad"}, x(8), 0).wait();
                   else
                     comm.all_reduce({"grad"}, x(8)).wait();
                 });
  expect_failure(ranks(2),
                 {"number of elements differs", "\"wte\" of 8 f32", "\"wte\" of 9 f32"},
                 [&](Comm& comm) { comm.all_reduce({"wte"}, x(8 + comm.rank())).wait(); });
  expect_failure(ranks(2), {"dtype differs", "of 8 f32", "of 8 bf16"}, [&](Comm& comm) {
    comm.all_reduce({"wte"}, x(8, comm.rank() ? DType::bf16 : DType::f32)).wait();
  });
  expect_failure(ranks(2), {"name differs", "call #1", "\"h.1\"", "\"h.2\""}, [&](Comm& comm) {
    comm.barrier({"start"}).wait();
    comm.all_reduce({comm.rank() ? "h.2" : "h.1"}, x(8)).wait();  // rank 1 skips a parameter
  });
  expect_failure(ranks(2), {"shards differs"}, [&](Comm& comm) {
    comm.all_gather({"x"}, x(2), comm.rank() ? Shards({4, 2}) : Shards({2, 4}), x(6)).wait();
  });
  expect_failure(ranks(2),
                 {"number of elements differs",
                  "send \"x\" of 8 f32 to rank 1",
                  "recv \"x\" of 7 f32 from rank 0"},
                 [&](Comm& comm) {
                   if (comm.rank() == 0)
                     comm.send({"x"}, x(8), 1).wait();
                   else
                     comm.recv({"x"}, x(7), 0).wait();
                 });
}

// Not the first calls alone, in every operation, also where the two calls move the same bytes or
// none at all.
TEST(Faults, DifferentCallsAreNamedHoweverLate) {
  const std::map<std::string, std::function<void(Comm&, const std::string&)>> calls = {
      {"all_reduce",
       [](Comm& c, const std::string& name) { c.all_reduce({name}, zeros({4})).wait(); }},
      {"ring",
       [](Comm& c, const std::string& name) {
         c.all_reduce({name}, zeros({4}), {.algorithm = Algorithm::ring}).wait();
       }},
      {"native",
       [](Comm& c, const std::string& name) {
         c.all_reduce({name}, zeros({4}), {.algorithm = Algorithm::native}).wait();
       }},
      {"empty", [](Comm& c, const std::string& name) { c.all_reduce({name}, zeros({0})).wait(); }},
      {"one owner",
       [](Comm& c, const std::string& name) {
         const Shards shards = Shards::whole(4, c.size(), 0);
         c.reduce_scatter({name}, zeros({4}), shards, zeros({shards.count(c.rank())})).wait();
       }},
      {"broadcast",
       [](Comm& c, const std::string& name) { c.broadcast({name}, zeros({4}), 1).wait(); }},
      {"barrier", [](Comm& c, const std::string& name) { c.barrier({name}).wait(); }},
      {"bytes", [](Comm& c, const std::string& name) { c.all_gather_bytes({name}, "x"); }},
  };
  for (const auto& [what, call] : calls) {
    SCOPED_TRACE(what);
    expect_failure(ranks(2, 20), {"name differs", "call #300", "\"a\"", "\"b\""}, [&](Comm& comm) {
      for (int i = 0; i < 300; ++i)
        call(comm, "same");
      call(comm, comm.rank() ? "b" : "a");
      call(comm, comm.rank() ? "a" : "b");
    });
  }
}

TEST(Faults, ARankThatHasReturnedIsNamedAtOnce) {
  const auto begin = std::chrono::steady_clock::now();
  expect_failure(
      ranks(3),
      {"rank 1 has returned from its program", "makes call #1, all_reduce \"grad\" of 8 f32"},
      [](Comm& comm) {
        comm.barrier({"start"}).wait();
        if (comm.rank() == 1)
          return;
        comm.all_reduce({"grad"}, zeros({8})).wait();
      });
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30))
      << "the time-out is a minute";
}

TEST(Faults, ABusyRankIsNotASilentOne) {
  run_threads(ranks(3, 0.4), [](Comm& comm) {
    if (comm.rank() == 2) {
      const Comm::Busy busy(comm);
      std::this_thread::sleep_for(std::chrono::milliseconds(1500));  // a slow disk
    }
    comm.barrier({"written"}).wait();
  });
}

TEST(Faults, TimeOutsAreHonouredOrRefused) {
  for (const double timeout : {1e9, 1e10, 1e300}) {
    run_threads(ranks(2, timeout), [](Comm& comm) { comm.barrier({"far"}).wait(); });
  }
  for (const double timeout : {0.0, -1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    EXPECT_THROW(run_threads(ranks(2, timeout), [](Comm&) {}), Error) << timeout;
  }
}

TEST(Faults, WrongSizesAreNamedWithoutComparisonsToo) {
  CommOptions options = ranks(2);
  options.checks = Checks::never;
  expect_failure(options, {"all_reduce \"wte\"", "bytes"}, [](Comm& comm) {
    comm.all_reduce({"wte"}, zeros({100 + 50 * comm.rank()})).wait();
  });
}

TEST(Faults, AMissingRankIsNamedAtTheDeadline) {
  expect_failure(ranks(3, 0.2),
                 {"all_reduce \"grad\" of 8 f32 on rank",
                  "call #1",
                  "no answer from rank 1",
                  "--comm-timeout"},
                 [](Comm& comm) {
                   const Tensor x = zeros({8});
                   comm.barrier({"start"}).wait();
                   if (comm.rank() == 1)
                     std::this_thread::sleep_for(std::chrono::seconds(1));
                   comm.all_reduce({"grad"}, x).wait();
                 });
}

TEST(Faults, TheFlightRecordShowsEveryRanksLastCalls) {
  run_threads(2, [](Comm& comm) {
    for (int i = 0; i < 40; ++i)
      comm.all_reduce({fmt::format("h.{}", i)}, zeros({4})).wait();
    comm.barrier({"end"}).wait();
    const std::string record = comm.flight_record();
    EXPECT_NE(record.find("rank 0: #39 all_reduce \"h.39\" of 4 f32, done in"), std::string::npos)
        << record;
    EXPECT_NE(record.find("rank 1: #39 all_reduce \"h.39\""), std::string::npos) << record;
    EXPECT_EQ(record.find("\"h.7\""), std::string::npos) << "only the last 32";
    comm.barrier({"read"}).wait();
  });
}

TEST(Faults, RanksMustAgreeAtTheStart) {
  run_threads(2, [](Comm& comm) { comm.agree({"start"}, {{"version", "0.1.0"}, {"seed", "1"}}); });
  expect_failure(
      ranks(3),
      {"start: ranks disagree on data.sha256: rank 0 has \"aa\", rank 2 has \"bb\""},
      [](Comm& comm) {
        comm.agree({"start"},
                   {{"config.lr", "0.001"}, {"data.sha256", comm.rank() == 2 ? "bb" : "aa"}});
      },
      ErrorKind::usage);
  expect_failure(
      ranks(2),
      {"ranks disagree on resume: rank 0 has nothing, rank 1 has \"latest\""},
      [](Comm& comm) {
        std::map<std::string, std::string> fields{{"seed", "1"}};
        if (comm.rank() == 1)
          fields["resume"] = "latest";
        comm.agree({"start"}, fields);
      },
      ErrorKind::usage);
}

TEST(Faults, ErrorsGiveTheirExitCodes) {
  const auto code_of = [](const std::function<void(Comm&)>& fn) {
    testing::internal::CaptureStderr();
    CommOptions options = ranks(2);
    options.device.threads = threads(cpu(0));
    const int code = launch(options, fn);
    return std::pair(code, testing::internal::GetCapturedStderr());
  };
  EXPECT_EQ(code_of([](Comm&) {}), std::pair(0, std::string()));
  const auto [code, text] = code_of([](Comm& comm) {
    comm.barrier({"start"}).wait();
    if (comm.rank() == 1)
      fail(ErrorKind::numeric, "loss: not finite");
    comm.barrier({"next"}).wait();
  });
  EXPECT_EQ(code, 5);
  EXPECT_EQ(text.rfind("last calls, latest first:\n", 0), 0u) << text;
  EXPECT_NE(text.find("rank 0: #1 barrier \"next\", running for"), std::string::npos) << text;
  EXPECT_TRUE(text.ends_with("rank 1: loss: not finite\n"))
      << "the line that matters comes last: " << text;
  const auto wrong = code_of([](Comm& comm) {
    comm.barrier({"start"}).wait();
    fail(ErrorKind::usage, "--width: 7 isn't a multiple of --heads");
  });
  EXPECT_EQ(wrong.first, 2);
  EXPECT_TRUE(wrong.second.ends_with(": --width: 7 isn't a multiple of --heads\n")) << wrong.second;
  EXPECT_EQ(std::count(wrong.second.begin(), wrong.second.end(), '\n'), 1)
      << "usage alone: " << wrong.second;
}

}  // namespace
}  // namespace sg::dist

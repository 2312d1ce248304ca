// Which processors ranks and threads get, as a table: what each rank may run on, the machine's
// nodes, and what is dealt.
#include "core/processors.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <string>
#include <thread>

#include "core/device.h"
#include "kernels/cpu/runtime/parallel.h"

namespace {

using namespace sg;
using Sets = std::vector<Processors>;

Sets sets_of(const std::vector<std::string>& lists) {
  Sets sets;
  for (const std::string& list : lists)
    sets.push_back(parse_processors(list));
  return sets;
}

TEST(Processors, ListsAreReadAsTheKernelWritesThem) {
  EXPECT_EQ(parse_processors("0-3,8"), (Processors{0, 1, 2, 3, 8}));
  EXPECT_EQ(parse_processors("5"), (Processors{5}));
  EXPECT_EQ(parse_processors("0-1,4-5,9"), (Processors{0, 1, 4, 5, 9}));
  for (const char* text : {"", "x", "1-", "-1", "1;2", "3-5x", "0-999999"}) {
    EXPECT_EQ(parse_processors(text), Processors()) << text;
  }
}

struct Dealing {
  const char* name;
  std::vector<std::string> allowed;  // to each rank
  std::vector<std::string> nodes;
  std::vector<std::string> dealt;
};

const Dealing dealings[] = {
    {"one rank has all", {"0-7"}, {"0-7"}, {"0-7"}},
    {"a rank keeps to the process's affinity", {"2,5"}, {"0-7"}, {"2,5"}},
    {"two ranks share one node", {"0-7", "0-7"}, {"0-7"}, {"0-3", "4-7"}},
    {"within the affinity", {"1-3,6", "1-3,6"}, {"0-7"}, {"1-2", "3,6"}},
    {"a rank a node", {"0-7", "0-7"}, {"0,2,4,6", "1,3,5,7"}, {"0,2,4,6", "1,3,5,7"}},
    {"two ranks a node",
     {"0-7", "0-7", "0-7", "0-7"},
     {"0-3", "4-7"},
     {"0-1", "2-3", "4-5", "6-7"}},
    {"three on two nodes: only the last takes what both leave",
     {"0-15", "0-15", "0-15"},
     {"0-7", "8-15"},
     {"0-4", "8-12", "5-7,13-14"}},
    {"equal numbers, the rest idle", {"0-6", "0-6"}, {"0-7"}, {"0-2", "3-5"}},
    {"an affinity that leaves little of a node", {"3-7", "3-7"}, {"0-3", "4-7"}, {"4-5", "6-7"}},
    {"more ranks than processors share them",
     {"0-1", "0-1", "0-1"},
     {"0-1"},
     {"0-1", "0-1", "0-1"}},
    {"the launcher has bound each", {"0-1", "2-3"}, {"0-3"}, {"0-1", "2-3"}},
    {"the launcher has bound pairs",
     {"0-3", "4-7", "0-3", "4-7"},
     {"0-7"},
     {"0-1", "4-5", "2-3", "6-7"}},
    {"a machine that tells of no nodes", {"0-3", "0-3"}, {""}, {"0-1", "2-3"}},
};

TEST(Processors, RanksGetDisjointOnesOfOneNodeWhereThatGoes) {
  for (const Dealing& d : dealings) {
    EXPECT_EQ(deal_processors(sets_of(d.allowed), sets_of(d.nodes)), sets_of(d.dealt)) << d.name;
  }
}

// Whatever the numbers: ranks that share an affinity get disjoint, equally large sets of it.
TEST(Processors, DealtSetsAreDisjoint) {
  for (int processors = 1; processors <= 24; ++processors) {
    for (int ranks = 1; ranks <= processors; ++ranks) {
      for (const int node : {3, 8, 24}) {
        Processors all;
        Sets nodes;
        for (int p = 0; p < processors; ++p) {
          if (p % node == 0)
            nodes.emplace_back();
          nodes.back().push_back(p);
          all.push_back(p);
        }
        std::vector<int> uses(static_cast<size_t>(processors), 0);
        for (const Processors& set :
             deal_processors(Sets(static_cast<size_t>(ranks), all), nodes)) {
          EXPECT_EQ(static_cast<int>(set.size()), ranks == 1 ? processors : processors / ranks);
          for (const int p : set)
            EXPECT_EQ(++uses[static_cast<size_t>(p)], 1);
        }
      }
    }
  }
}

TEST(Processors, ThreadsOfARank) {
  EXPECT_EQ(threads_for(sets_of({"0-7"}), 0), 8);
  EXPECT_EQ(threads_for(sets_of({"0-3", "4-7"}), 1), 4);
  EXPECT_EQ(threads_for(sets_of({"0-1", "0-1", "0-1"}), 2), 1);
  EXPECT_EQ(place_threads(parse_processors("0-3"), sets_of({"0-3"}), 2), sets_of({"0-3", "0-3"}));
  const Sets spread = place_threads(parse_processors("2-5"), sets_of({"0-3", "4-7"}), 5);
  EXPECT_EQ(spread, sets_of({"2-3", "2-3", "4-5", "4-5", "2-3"}));
}

Processors affinity_of_thread() {
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(0, sizeof set, &set);
  Processors found;
  for (int p = 0; p < CPU_SETSIZE; ++p) {
    if (CPU_ISSET(p, &set))
      found.push_back(p);
  }
  return found;
}

// On a device with processors of its own all threads run on them, the process's number stays what
// it was.
TEST(Processors, ADevicesThreadsRunOnItsProcessors) {
  const int before = available_processors();
  const Processors one{process_processors().back()};
  const Device device = cpu(max_devices - 1);
  std::thread([&] {
    set_processors(device, one);
    join_processors(device);
    configure(device, {.threads = 3});
    EXPECT_EQ(affinity_of_thread(), one);
    auto* const workers = static_cast<kernels::ThreadPool*>(stream_handle(device).raw);
    std::vector<Processors> seen(64);
    const auto look = [](void* found, int64_t i, int) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));  // so that every worker gets some
      (*static_cast<std::vector<Processors>*>(found))[static_cast<size_t>(i)] =
          affinity_of_thread();
    };
    workers->run(static_cast<int64_t>(seen.size()), look, &seen);
    for (const Processors& s : seen)
      EXPECT_EQ(s, one);
    EXPECT_EQ(available_processors(), before);
  }).join();
}

}  // namespace

#include "core/processors.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>

namespace sg {
namespace {

bool has(const Processors& set, int processor) {
  return std::find(set.begin(), set.end(), processor) != set.end();
}

// Those of a set by node, without empty nodes; what lies in none comes last.
std::vector<Processors> by_node(const Processors& set, const std::vector<Processors>& nodes) {
  std::vector<Processors> parts;
  Processors rest = set;
  for (const Processors& node : nodes) {
    Processors part;
    std::copy_if(
        set.begin(), set.end(), std::back_inserter(part), [&](int p) { return has(node, p); });
    std::erase_if(rest, [&](int p) { return has(part, p); });
    if (!part.empty())
      parts.push_back(std::move(part));
  }
  if (!rest.empty())
    parts.push_back(std::move(rest));
  return parts;
}

Processors joined(const std::vector<Processors>& parts) {
  Processors all;
  for (const Processors& part : parts)
    all.insert(all.end(), part.begin(), part.end());
  return all;
}

// Takes the first `count` of a set.
Processors take(Processors& from, size_t count) {
  const auto end = from.begin() + static_cast<std::ptrdiff_t>(std::min(count, from.size()));
  Processors taken(from.begin(), end);
  from.erase(from.begin(), end);
  return taken;
}

// A set for `ranks` ranks: as many whole shares from each node as it holds, then shares of what is
// left.
std::vector<Processors> shares(const Processors& set,
                               const std::vector<Processors>& nodes,
                               size_t ranks) {
  std::vector<Processors> parts = by_node(set, nodes);
  const size_t each = set.size() / ranks;
  if (each == 0 || ranks == 1)
    return std::vector<Processors>(ranks, joined(parts));
  std::vector<Processors> dealt;
  for (Processors& part : parts) {
    while (part.size() >= each && dealt.size() < ranks)
      dealt.push_back(take(part, each));
  }
  Processors left = joined(parts);
  while (dealt.size() < ranks)
    dealt.push_back(take(left, each));
  return dealt;
}

Processors affinity() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0)
    return {0};
  Processors found;
  for (int processor = 0; processor < CPU_SETSIZE; ++processor) {
    if (CPU_ISSET(processor, &set))
      found.push_back(processor);
  }
  return found;
}

std::vector<Processors> nodes_of_machine() {
  std::vector<Processors> nodes;
  for (int node = 0;; ++node) {
    std::ifstream file("/sys/devices/system/node/node" + std::to_string(node) + "/cpulist");
    std::string list;
    if (!std::getline(file, list))
      break;
    nodes.push_back(parse_processors(list));
  }
  return nodes.empty() ? std::vector<Processors>(1) : nodes;
}

}  // namespace

Processors parse_processors(const std::string& list) {
  Processors found;
  for (const char *at = list.data(), *const end = at + list.size(); at < end;) {
    int first = 0;
    auto result = std::from_chars(at, end, first);
    int last = first;
    if (result.ec == std::errc{} && result.ptr < end && *result.ptr == '-') {
      result = std::from_chars(result.ptr + 1, end, last);
    }
    const bool follows = result.ptr == end || *result.ptr == ',';
    if (result.ec != std::errc{} || !follows || first < 0 || last >= CPU_SETSIZE)
      return {};
    for (int processor = first; processor <= last; ++processor)
      found.push_back(processor);
    at = result.ptr + 1;
  }
  return found;
}

const Processors& process_processors() {
  static const Processors all = affinity();
  return all;
}

const std::vector<Processors>& numa_nodes() {
  static const std::vector<Processors> nodes = nodes_of_machine();
  return nodes;
}

std::vector<Processors> deal_processors(const std::vector<Processors>& allowed,
                                        const std::vector<Processors>& nodes) {
  std::vector<Processors> dealt(allowed.size());
  for (size_t rank = 0; rank < allowed.size(); ++rank) {
    std::vector<size_t> together;  // ranks that may run on the same
    for (size_t other = 0; other < allowed.size(); ++other) {
      if (allowed[other] == allowed[rank])
        together.push_back(other);
    }
    if (together.front() != rank)
      continue;  // dealt with the first of them
    const std::vector<Processors> parts = shares(allowed[rank], nodes, together.size());
    for (size_t i = 0; i < together.size(); ++i)
      dealt[together[i]] = parts[i];
  }
  return dealt;
}

std::vector<Processors> place_threads(const Processors& own,
                                      const std::vector<Processors>& nodes,
                                      int threads) {
  const std::vector<Processors> parts = by_node(own, nodes);
  std::vector<Processors> of_processor;  // its node's part, in the order of nodes
  for (const Processors& part : parts)
    of_processor.insert(of_processor.end(), part.size(), part);
  std::vector<Processors> places(static_cast<size_t>(threads));
  for (size_t thread = 0; thread < places.size() && !of_processor.empty(); ++thread) {
    places[thread] = of_processor[thread % of_processor.size()];
  }
  return places;
}

int threads_for(const std::vector<Processors>& dealt, size_t rank) {
  const auto sharing = std::count(dealt.begin(), dealt.end(), dealt[rank]);
  return std::max(1, static_cast<int>(dealt[rank].size()) / static_cast<int>(sharing));
}

void run_on(const Processors& processors) {
  if (processors.empty())
    return;
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int processor : processors)
    CPU_SET(processor, &set);
  sched_setaffinity(0, sizeof set, &set);
}

namespace {

struct Assigned {
  std::mutex mutex;
  std::map<int, Processors> by_index;
};
Assigned& assigned() {
  static auto* instance = new Assigned;
  return *instance;
}

}  // namespace

void set_processors(Device device, Processors processors) {
  std::lock_guard lock(assigned().mutex);
  assigned().by_index[device.index] = std::move(processors);
}

Processors processors_of(Device device) {
  std::lock_guard lock(assigned().mutex);
  const auto found = assigned().by_index.find(device.index);
  return found == assigned().by_index.end() ? Processors() : found->second;
}

void join_processors(Device device) {
  run_on(place_threads(processors_of(device), numa_nodes(), 1).front());
}

}  // namespace sg

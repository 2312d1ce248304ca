// Which processors threads run on: those that the process was given, by NUMA nodes, dealt to the
// ranks of a machine.
#pragma once
#include <string>
#include <vector>

#include "kernels/device.h"

namespace sg {

using Processors = std::vector<int>;  // their numbers

// "0-3,8" as the kernel writes lists; what is no such list gives none.
Processors parse_processors(const std::string& list);

// The process's affinity when it is first asked for, before any thread is bound.
const Processors& process_processors();
// Of the machine; a single node without members where it tells of none.
const std::vector<Processors>& numa_nodes();

// What each rank of one machine runs on, given what each may. Ranks that may run on the same
// processors (no launcher has bound them) share these out: equal numbers, disjoint, of one node
// wherever that goes; more ranks than processors get them all. Others keep what they have. In the
// order of nodes.
std::vector<Processors> deal_processors(const std::vector<Processors>& allowed,
                                        const std::vector<Processors>& nodes);

// Where each of so many threads of a rank runs: on those of the rank's processors that lie in one
// node, threads taking the processors, and so the nodes, in turn.
std::vector<Processors> place_threads(const Processors& own,
                                      const std::vector<Processors>& nodes,
                                      int threads);

// Threads that a rank has unless it asks for a number: its processors, shared with those that were
// dealt the same.
int threads_for(const std::vector<Processors>& dealt, size_t rank);

// Binds the calling thread, and those that it will start. No effect where there are none, or the
// system refuses.
void run_on(const Processors&);

// The processors of a cpu device's threads, set before its first use; none where none were set: its
// workers then spread over those of the process.
void set_processors(Device, Processors);
Processors processors_of(Device);
// Binds the calling thread, which uses the device, where its processors were set.
void join_processors(Device);

}  // namespace sg

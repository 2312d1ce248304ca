// A CUDA device in software, for tests on machines without a GPU: what a test may set and ask.
//
// The .cu files are compiled by the C++ compiler under shim.h, and linked to this folder's own CUDA
// runtime (memory.cpp, streams.cpp), executor (one fiber per CUDA thread) and race checker instead
// of NVIDIA's libraries. Queued work runs on the host thread that waits for it; one kernel runs at
// a time, its blocks one after another.
//
// Not shown: limits of registers, contraction and fast-math, weak memory order, speed.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace simt {

// The order in which threads start, blocks follow each other and waiting threads go on; random
// depends on the seed.
enum class Order { forward, reverse, random };

// lazy: queued work runs only when something waits, a random ready stream at a time, so that a
// missing wait shows in some seeds. eager: at once, in the order of the calls.
enum class Streams { lazy, eager };

struct Options {
  Order order = Order::forward;
  Streams streams = Streams::lazy;
  uint64_t seed = 1;
  int devices = 2;
  size_t capacity = size_t(64) << 20;     // bytes that cudaMalloc hands out per device
  size_t stack_bytes = size_t(64) << 10;  // of a CUDA thread; below it lies a guard page
  bool portable_switch = false;           // ucontext instead of the hand-made x86-64 switch
};

// Drains and forgets everything (streams, events and memory of before are gone), then behaves as
// asked.
void reset(const Options&);

// One line for each fault that a kernel or a call has made since the last time, with file and line
// where known. Afterwards the device works again; until then every call returns the error of the
// fault.
std::vector<std::string> take_faults();

// Whether this build watches each access of a kernel: races, reads of memory never written,
// accesses outside any allocation. A build for another sanitizer does not.
bool checks_accesses();

}  // namespace simt

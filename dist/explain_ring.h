// The ring all-reduce watched at work: which ranks' values each block holds, step by step, read
// from the memory of ranks that run dist/comm/reduce.h's reduce_ring.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "dist/comm/reduce.h"

namespace sg::dist {

struct RingTrace {
  using Contributors = uint32_t;  // bit r: rank r's values are in the sum
  struct Move {
    RingStep step;
    Contributors received =
        0;  // what the block that came from the previous rank is now, with the own values added
  };
  int ranks = 0;
  std::vector<std::vector<Move>> moves;  // [rank][step]
  // [rank][block], in the tensor that is reduced: after the scatter-reduce, and at the end.
  std::vector<std::vector<Contributors>> after_scatter, after_gather;
};

// Runs the ring on so many thread ranks, 2 … 8, over one element a block.
RingTrace trace_ring(int ranks);

// The trace as a text for readers.
std::string explain_ring(int ranks);

}  // namespace sg::dist

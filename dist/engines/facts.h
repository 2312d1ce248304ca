// Facts about the engines, a row each: whoever needs to know something of an engine asks here.
#pragma once
#include <cstdint>
#include <span>

#include "dist/options.h"

namespace sg::dist {

// What an engine shards over the ranks beside what the rung before it does.
enum class ModelState : uint8_t { nothing, optimizer, gradients, parameters };
const char* name_of(ModelState state);

// What runs while updated parameters travel.
enum class Beside : uint8_t { nothing, next_forward, every_product };

struct EngineFacts {
  EngineKind kind;
  EngineKind next;        // the ladder's next rung; itself where none is left
  ModelState shards;      // more than the rung before
  Accumulation order;     // that Accumulation::automatic means
  bool one_reader;        // replica 0 reads the global batch and scatters it
  bool gathers_units;     // parameters are whole only while their unit runs
  Beside parameters_run;  // with overlap
};

const EngineFacts& facts_of(EngineKind kind);

// ddp, zero1, zero2, zero3: each needs less memory than the one before it. A DeepSpeed stage is its
// number here.
std::span<const EngineKind> ladder();

}  // namespace sg::dist

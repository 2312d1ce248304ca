// What a checkpoint tells of its run, beside the tensors: enough to resume it, to refuse another run's, and to build
// the model again without its command line.
#pragma once
#include <map>
#include <string>

#include "models/run/options.h"
#include "models/run/receipt.h"

namespace sg::models {

struct SavedRun {
  std::string family;
  SizeOptions size;  // every number given
  std::string tokenizer;
  uint64_t seed = 0;
  int64_t steps = 0;
  RunRecord record;

  std::string text() const;  // a JSON object
  // Error bad_input, naming `source`, unless the text came from text().
  static SavedRun parse(const std::string& text, const std::string& source);
};

using Numerics = std::map<std::string, std::string>;
Numerics parse_numerics(const std::string& text, const std::string& source);

// Sequences in a step of all ranks.
int64_t global_batch_of(const Numerics& saved, const std::string& source);

// Whether --accept-change (world, isa, library, by commas) names it; anything else there is a usage error.
bool accepts_change(const std::string& accepted, const std::string& name);
// Error bad_input unless both runs' numerics are equal but for what `accepted` (world, isa, library, by commas) allows:
// it names the first that differs and both values. world allows micro_steps to differ too.
void check_numerics(const Numerics& saved, const Numerics& now, const std::string& accepted, const std::string& source);

}  // namespace sg::models

// What a checkpoint tells of its run, beside the tensors: enough to resume it, to refuse another
// run's, and to build the model again without its command line.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "dist/checkpoint/checkpoint.h"
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
// What the checkpoint's run depends on, in today's words: one from before `rules` counts as rules
// 1, and the length of its schedule is the run's.
Numerics numerics_of(const dist::CheckpointReader& checkpoint);
// The warm-up of a schedule that these numerics name; none where they name none.
std::optional<int64_t> warmup_of(const Numerics& saved);

// Sequences in a step of all ranks.
int64_t global_batch_of(const Numerics& saved, const std::string& source);

// Whether --accept-change (world, isa, library, rules, steps, by commas) names it; anything else
// there is a usage error.
bool accepts_change(const std::string& accepted, const std::string& name);
// Error bad_input unless both runs' numerics are equal but for what `accepted` (as above) allows:
// it names the first that differs and both values. world allows micro_steps to differ too. Returns
// what differs, as lines to show.
std::vector<std::string> check_numerics(const Numerics& saved,
                                        const Numerics& now,
                                        const std::string& accepted,
                                        const std::string& source);

}  // namespace sg::models

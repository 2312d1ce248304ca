// A trained model back from its checkpoint, without the command line that trained it.
#pragma once
#include <memory>
#include <string>

#include "models/data/tokenizer.h"
#include "models/run/commands.h"
#include "models/run/saved_run.h"

namespace sg::models {

struct Loaded {
  std::unique_ptr<LanguageModel> model;  // in eval mode
  Tokenizer tokenizer;
  int64_t step = 0;  // steps done
};

// From the newest checkpoint of the run in `folder`. Errors: bad_input (no checkpoint, a damaged
// one, another family's), numeric (a parameter that isn't finite, by name).
Loaded load_model(const Family& family, const std::string& folder);

// What a checkpoint tells of its run. Error bad_input unless it is of this family, and unless the
// sizes that it names make the parameters that it holds: a model of wrong ones could take all
// memory.
SavedRun saved_run_of(const Family& family, const dist::CheckpointReader& checkpoint);

// Error numeric, naming the parameter and where the value stands, unless all of `values` (f32) are
// finite.
void check_finite(const Tensor& values, const std::string& parameter, const std::string& source);

// The model on a meta device of its own, for an engine to take over: no device ever holds the whole
// model beside the engine's memory, and a dry run's books don't either.
std::unique_ptr<LanguageModel> build_on_meta(const Family& family,
                                             const SizeOptions& size,
                                             uint64_t seed);

}  // namespace sg::models

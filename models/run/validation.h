// The loss on held-out data.
#pragma once
#include <cstdint>

#include "dist/comm/comm.h"
#include "models/data/data.h"
#include "models/language_model.h"

namespace sg::models {

struct ValidationOptions {
  int64_t rows = 1;     // of a batch
  int64_t batches = 0;  // 0, or more than there are: the whole split
};

// The mean over all targets of the validation split's first batches, dealt to the ranks by number;
// the same value on every rank and for every number of ranks (numerics, rule 11). Collective.
// Dropout is off while it runs.
double validation_loss(LanguageModel& model,
                       const Dataset& data,
                       const ValidationOptions& options,
                       dist::Comm& comm);

}  // namespace sg::models

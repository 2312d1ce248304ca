// Where the training loop takes its micro-batches from.
#pragma once
#include <memory>
#include <optional>

#include "dist/comm/comm.h"
#include "models/data/batches.h"

namespace sg::models {

// The same batches on every rank either way: each rank reads its own, or, as data parallelism with
// a master has it, one reader takes the whole micro-step's rows and scatters them (booked under
// metrics).
class Feed {
 public:
  // Collective where there is one reader, like each next(). `options` are of comm's rank and size.
  Feed(const Dataset& data, const BatchOptions& options, bool one_reader, dist::Comm& comm);

  Batch next();  // past the last step it is a Bug

 private:
  Batch read();
  Batch scattered();

  const BatchOptions options_;
  const bool scatters_;
  dist::Comm& comm_;
  std::optional<Batches> reader_;  // one reader: at rank 0 only
  uint64_t taken_ = 0;             // micro-batches of this rank
};

}  // namespace sg::models

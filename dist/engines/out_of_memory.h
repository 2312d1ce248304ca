// What an engine says when its device's memory is full: beside the pool's figures, which rank of
// which engine it was and what the next rung of the ladder (facts.h) would free.
#pragma once
#include "core/pool.h"
#include "dist/options.h"

namespace sg::dist {

// `elements`: trainable ones of the model. `options` are resolved.
Error explain(const OutOfMemory& error, const Options& options, const Comm& comm, int64_t elements);

}  // namespace sg::dist

// Starting ranks: threads of this process, or the processes that mpirun or srun started.
#pragma once
#include <functional>

#include "dist/comm/connect.h"

namespace sg::dist {

// Runs fn once per rank, each on a thread of its own with device cpu:rank as current device;
// returns when all have ended. The first error of any rank is rethrown, after the last calls of all
// ranks were written to stderr. Where options.device says anything, it holds for all ranks' devices
// until then; a number of threads other than a device already runs with is a usage error.
void run_threads(const CommOptions& options, const std::function<void(Comm&)>& fn);
void run_threads(int ranks, const std::function<void(Comm&)>& fn);

// A program's main: fn once per rank, errors written to stderr, the exit code by their kind. Under
// MPI a rank that fails ends the job. Ranks come from options, or from `--ranks N` in argv, which
// are left for fn's own reading.
int launch(const CommOptions& options, const std::function<void(Comm&)>& fn);
int launch(int argc, char** argv, const std::function<void(Comm&)>& fn);

}  // namespace sg::dist

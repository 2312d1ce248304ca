// Starting ranks: threads of this process, or the processes that mpirun or srun started.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "core/device.h"
#include "dist/comm.h"

namespace sg::dist {

struct CommOptions {
  int ranks = 0;  // threads: how many (0: one); under a launcher its world decides, and another number is refused
  double timeout = 300;  // seconds a call may wait for peers; half-way there is a warning
  Checks checks = Checks::first_steps;
  double link_bandwidth = 0;  // bytes per second of an emulated link between thread ranks; 0: none
  double link_latency = 0;    // seconds per message on it
  DeviceOptions device;       // of each rank; threads 0: the processors dealt evenly to the ranks of this machine
};

// Whether mpirun, srun or another MPI launcher started this process.
bool under_launcher();

// Runs fn once per rank, each on a thread of its own with device cpu:rank as current device; returns when all have
// ended. The first error of any rank is rethrown, after the last calls of all ranks were written to stderr.
void run_threads(const CommOptions& options, const std::function<void(Comm&)>& fn);
void run_threads(int ranks, const std::function<void(Comm&)>& fn);

// This process's rank of the world its launcher started, on device cpu:0. Error usage where there is no launcher or the
// build has no MPI.
std::unique_ptr<Comm> connect_mpi(const CommOptions& options);

// A program's main: fn once per rank, errors written to stderr, the exit code by their kind. Under MPI a rank that
// fails ends the job. Ranks come from options, or from `--ranks N` in argv, which are left for fn's own reading.
int launch(const CommOptions& options, const std::function<void(Comm&)>& fn);
int launch(int argc, char** argv, const std::function<void(Comm&)>& fn);

}  // namespace sg::dist

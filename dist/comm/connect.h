// The group of ranks that a launcher started, and what any group is asked for.
#pragma once
#include <memory>

#include "core/device.h"
#include "dist/comm/comm.h"

namespace sg::dist {

struct CommOptions {
  int ranks = 0;  // threads: how many (0: one); under a launcher its world decides, and another
                  // number is refused
  double timeout =
      300;  // seconds a call may wait for silent peers, above 0; half-way there is a warning
  Checks checks = Checks::always;
  double link_bandwidth = 0;  // bytes per second of an emulated link between thread ranks; 0: none
  double link_latency = 0;    // seconds per message on it
  DeviceOptions
      device;  // of each rank; threads 0: the processors dealt evenly to the ranks of this machine
  uint64_t host_memory = Pool::unlimited;  // bytes that this process's ranks have of their host
};

void check_timeout(double seconds);  // usage error unless it is a finite number above 0

// Whether mpirun, srun or another MPI launcher started this process.
bool under_launcher();

// This process's rank of the world its launcher started, on device cpu:0. Error usage where there
// is no launcher or the build has no MPI.
std::unique_ptr<Comm> connect_mpi(const CommOptions& options);

}  // namespace sg::dist

#include "dist/comm/connect.h"

#include <cmath>
#include <cstdlib>

#include "core/error.h"

namespace sg::dist {

void check_timeout(double seconds) {
  check(std::isfinite(seconds) && seconds > 0,
        "ranks: the time-out must be a finite number of seconds above 0, not {}",
        seconds);
}

bool under_launcher() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "PMI_SIZE"}) {
    if (std::getenv(name))
      return true;
  }
  const char* tasks = std::getenv(
      "SLURM_STEP_NUM_TASKS");  // srun without an MPI plugin: told apart by its world of one
  return tasks && std::atoi(tasks) > 1 && std::getenv("SLURM_PROCID");
}

}  // namespace sg::dist

#include "dist/comm/connect.h"

#include <cstdlib>

namespace sg::dist {

bool under_launcher() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "PMI_SIZE"}) {
    if (std::getenv(name)) return true;
  }
  const char* tasks =
      std::getenv("SLURM_STEP_NUM_TASKS");  // srun without an MPI plugin: told apart by its world of one
  return tasks && std::atoi(tasks) > 1 && std::getenv("SLURM_PROCID");
}

}  // namespace sg::dist

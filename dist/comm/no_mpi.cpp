// Stands for mpi*.cpp in a build without MPI.
#include "core/error.h"
#include "dist/comm/connect.h"

namespace sg::dist {

std::unique_ptr<Comm> connect_mpi(const CommOptions&) {
  fail(ErrorKind::usage,
       "mpi: this build has no MPI: install OpenMPI or MPICH with its headers and build again with "
       "SG_WITH_MPI=ON, or "
       "start "
       "the program without mpirun or srun (--ranks N runs threads)");
}

}  // namespace sg::dist

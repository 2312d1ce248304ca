// Stands before MPI in the program it is linked with: MPI belongs to one thread, from the first
// call to the last, though SERIALIZED would allow others in turn. A call from another thread is
// told and ends the process. The end is told too, so that a test knows that it was watched.
#include <mpi.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <thread>

namespace {

std::thread::id mpi_thread;
std::atomic<int> calls{0};

void must_be_mpi_thread(const char* call) {
  ++calls;
  if (std::this_thread::get_id() == mpi_thread)
    return;
  std::fprintf(stderr, "%s is called on another thread than MPI_Init_thread\n", call);
  std::_Exit(99);
}

}  // namespace

extern "C" {

int MPI_Init_thread(int* argc, char*** argv, int required, int* provided) {
  mpi_thread = std::this_thread::get_id();
  return PMPI_Init_thread(argc, argv, required, provided);
}
int MPI_Isend(const void* data,
              int count,
              MPI_Datatype type,
              int to,
              int tag,
              MPI_Comm comm,
              MPI_Request* request) {
  must_be_mpi_thread("MPI_Isend");
  return PMPI_Isend(data, count, type, to, tag, comm, request);
}
int MPI_Irecv(void* data,
              int count,
              MPI_Datatype type,
              int from,
              int tag,
              MPI_Comm comm,
              MPI_Request* request) {
  must_be_mpi_thread("MPI_Irecv");
  return PMPI_Irecv(data, count, type, from, tag, comm, request);
}
int MPI_Testall(int count, MPI_Request requests[], int* done, MPI_Status statuses[]) {
  must_be_mpi_thread("MPI_Testall");
  return PMPI_Testall(count, requests, done, statuses);
}
int MPI_Win_free(MPI_Win* window) {
  must_be_mpi_thread("MPI_Win_free");
  return PMPI_Win_free(window);
}
int MPI_Comm_free(MPI_Comm* comm) {
  must_be_mpi_thread("MPI_Comm_free");
  return PMPI_Comm_free(comm);
}
int MPI_Finalize() {
  must_be_mpi_thread("MPI_Finalize");
  std::printf("%d calls of MPI on one thread\n", calls.load());
  return PMPI_Finalize();
}

}  // extern "C"

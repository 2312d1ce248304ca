#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <new>
#include <numeric>
#include <thread>

#include "core/trace.h"
#include "dist/comm/connect.h"
#include "dist/comm/mpi.h"

namespace sg::dist {
namespace {

constexpr auto patience = std::chrono::seconds(2);  // for the comm stream to leave MPI before a job is ended

template <class T>
void add(void* in, void* inout, int* count, MPI_Datatype*) {
  const T* x = static_cast<const T*>(in);
  T* sum = static_cast<T*>(inout);
  for (int i = 0; i < *count; ++i) sum[i] = T(static_cast<float>(sum[i]) + static_cast<float>(x[i]));
}

}  // namespace

MpiWorld::MpiWorld() {
  int begun = 0, provided = 0;
  MPI_Initialized(&begun);
  check(!begun, "mpi: it has been started in this process already");
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided);
  if (provided < MPI_THREAD_SERIALIZED)
    spdlog::warn("mpi: made for one thread only; a failed rank may end less cleanly");
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
  MPI_Comm_size(MPI_COMM_WORLD, &size_);
  MPI_Op_create(add<f16>, 1, &sum_f16_);
  MPI_Op_create(add<bf16>, 1, &sum_bf16_);
  share_boards();
}

void MpiWorld::share_boards() {
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &host_);
  MPI_Comm_size(host_, &host_size_);
  std::vector<int> ranks(static_cast<size_t>(host_size_));
  MPI_Allgather(&rank_, 1, MPI_INT, ranks.data(), 1, MPI_INT, host_);
  void* mine = nullptr;
  MPI_Win_allocate_shared(sizeof(FlightBoard), 1, MPI_INFO_NULL, host_, &mine, &window_);
  boards_.assign(static_cast<size_t>(size_), nullptr);
  for (int i = 0; i < host_size_; ++i) {
    MPI_Aint bytes = 0;
    int unit = 0;
    void* base = nullptr;
    MPI_Win_shared_query(window_, i, &bytes, &unit, &base);
    boards_[static_cast<size_t>(ranks[static_cast<size_t>(i)])] = static_cast<FlightBoard*>(base);
  }
  new (mine) FlightBoard;
  MPI_Barrier(host_);
}

MpiWorld::~MpiWorld() {
  if (failed_) return;  // peers may never answer; the launcher ends a job that goes without a farewell
  MPI_Win_free(&window_);
  MPI_Comm_free(&host_);
  MPI_Op_free(&sum_f16_);
  MPI_Op_free(&sum_bf16_);
  MPI_Finalize();
}

MPI_Op MpiWorld::sum_of(DType dtype) const {
  if (dtype == DType::f16) return sum_f16_;
  return dtype == DType::bf16 ? sum_bf16_ : MPI_SUM;
}

void MpiWorld::abort(int exit_code) {
  ending_ = true;
  const auto begin = std::chrono::steady_clock::now();
  while (inside_ && std::chrono::steady_clock::now() - begin < patience) std::this_thread::yield();
  MPI_Abort(MPI_COMM_WORLD, exit_code);
  std::_Exit(exit_code);
}

std::unique_ptr<Comm> connect_mpi(const CommOptions& options) {
  check(under_launcher(), "mpi: start the program with mpirun or srun to run it as several processes");
  check(options.link_bandwidth == 0 && options.link_latency == 0, "mpi: a link is emulated between thread ranks only");
  auto shared = std::make_shared<CommShared>(cpu(0), options.checks, options.timeout);
  std::shared_ptr<MpiWorld> world;
  shared->stream.enqueue("MPI_Init", [&] {
    world = std::make_shared<MpiWorld>();
    trace::set_rank(world->rank());
  });
  shared->stream.synchronize();
  trace::set_rank(world->rank());

  DeviceOptions device = options.device;
  const int processors = available_processors();
  const bool bound = processors < sysconf(_SC_NPROCESSORS_ONLN);  // the launcher has dealt the processors
  if (device.threads == 0) device.threads = std::max(1, bound ? processors : processors / world->ranks_on_this_host());
  configure(cpu(0), device);

  const int ranks = world->size();
  std::vector<int> world_ranks(static_cast<size_t>(ranks));
  std::iota(world_ranks.begin(), world_ranks.end(), 0);
  auto comm = std::make_unique<Comm>(
      std::make_unique<MpiTransport>(std::move(world), MPI_COMM_WORLD, std::move(world_ranks), 0), std::move(shared));
  check(options.ranks == 0 || options.ranks == ranks, "ranks: {} are asked for, the launcher started {}", options.ranks,
        ranks);
  const char* tasks = std::getenv("SLURM_STEP_NUM_TASKS");
  check(ranks > 1 || !tasks || std::atoi(tasks) <= 1,
        "mpi: srun started {} tasks, MPI sees each alone; try srun --mpi=pmix, or mpirun", tasks ? tasks : "");
  return comm;
}

}  // namespace sg::dist

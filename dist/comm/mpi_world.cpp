#include <spdlog/spdlog.h>

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

constexpr auto patience =
    std::chrono::seconds(2);  // for the comm stream to leave MPI before a job is ended

template <class T>
void add(void* in, void* inout, int* count, MPI_Datatype*) {
  const T* x = static_cast<const T*>(in);
  T* sum = static_cast<T*>(inout);
  for (int i = 0; i < *count; ++i)
    sum[i] = T(static_cast<float>(sum[i]) + static_cast<float>(x[i]));
}

}  // namespace

MpiWorld::MpiWorld() {
  int begun = 0, provided = 0;
  mpi_must(MPI_Initialized(&begun), "MPI_Initialized");
  check(!begun, "mpi: it has been started in this process already");
  mpi_must(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided), "MPI_Init_thread");
  if (provided < MPI_THREAD_SERIALIZED)
    spdlog::warn("mpi: made for one thread only; a failed rank may end less cleanly");
  mpi_must(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  mpi_must(MPI_Comm_rank(MPI_COMM_WORLD, &rank_), "MPI_Comm_rank");
  mpi_must(MPI_Comm_size(MPI_COMM_WORLD, &size_), "MPI_Comm_size");
  mpi_must(MPI_Op_create(add<f16>, 1, &sum_f16_), "MPI_Op_create");
  mpi_must(MPI_Op_create(add<bf16>, 1, &sum_bf16_), "MPI_Op_create");
  share_boards();
}

void MpiWorld::share_boards() {
  mpi_must(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &host_),
           "MPI_Comm_split_type");
  mpi_must(MPI_Comm_rank(host_, &host_rank_), "MPI_Comm_rank");
  mpi_must(MPI_Comm_size(host_, &host_size_), "MPI_Comm_size");
  std::vector<int> ranks(host_size_);
  mpi_must(MPI_Allgather(&rank_, 1, MPI_INT, ranks.data(), 1, MPI_INT, host_), "MPI_Allgather");
  void* mine = nullptr;
  mpi_must(MPI_Win_allocate_shared(sizeof(FlightBoard), 1, MPI_INFO_NULL, host_, &mine, &window_),
           "MPI_Win_allocate_shared");
  boards_.assign(size_, nullptr);
  for (int i = 0; i < host_size_; ++i) {
    MPI_Aint bytes = 0;
    int unit = 0;
    void* base = nullptr;
    mpi_must(MPI_Win_shared_query(window_, i, &bytes, &unit, &base), "MPI_Win_shared_query");
    boards_[ranks[i]] = static_cast<FlightBoard*>(base);
  }
  new (mine) FlightBoard;
  mpi_must(MPI_Barrier(host_), "MPI_Barrier");
}

std::vector<Processors> MpiWorld::processors_on_this_host() const {
  constexpr int most = 1024;  // a byte for each processor
  std::vector<char> mine(most), all(host_size_ * most);
  for (const int processor : process_processors()) {
    if (processor < most)
      mine[processor] = 1;
  }
  mpi_must(MPI_Allgather(mine.data(), most, MPI_CHAR, all.data(), most, MPI_CHAR, host_),
           "MPI_Allgather");
  std::vector<Processors> sets(host_size_);
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i])
      sets[i / most].push_back(static_cast<int>(i % most));
  }
  return sets;
}

MpiWorld::~MpiWorld() {
  if (failed_)
    return;  // peers may never answer; the launcher ends a job that goes without a farewell
  const bool ended = MPI_Win_free(&window_) == MPI_SUCCESS &&
                     MPI_Comm_free(&host_) == MPI_SUCCESS &&
                     MPI_Op_free(&sum_f16_) == MPI_SUCCESS &&
                     MPI_Op_free(&sum_bf16_) == MPI_SUCCESS && MPI_Finalize() == MPI_SUCCESS;
  if (!ended)
    spdlog::warn("mpi: rank {} could not end MPI in order", rank_);
}

MPI_Op MpiWorld::sum_of(DType dtype) const {
  if (dtype == DType::f16)
    return sum_f16_;
  return dtype == DType::bf16 ? sum_bf16_ : MPI_SUM;
}

void MpiWorld::abort(int exit_code) {
  ending_ = true;
  const auto begin = std::chrono::steady_clock::now();
  while (inside_ && std::chrono::steady_clock::now() - begin < patience)
    std::this_thread::yield();
  MPI_Abort(MPI_COMM_WORLD, exit_code);
  std::_Exit(exit_code);
}

namespace {

struct MpiStart {
  std::shared_ptr<MpiWorld> world;
  std::vector<Processors> dealt;  // to the ranks of this host
};

// On the comm stream, whose thread makes every call of MPI from the first to the last. A rank that
// never comes would hold the others inside MPI for ever, where nothing polls: they give up at the
// deadline.
MpiStart start_mpi(const std::shared_ptr<CommShared>& shared) {
  const auto start = std::make_shared<MpiStart>();
  shared->stream.enqueue("MPI_Init", [start] {
    start->world = std::make_shared<MpiWorld>();
    start->dealt = deal_processors(start->world->processors_on_this_host(), numa_nodes());
    run_on(start->dealt[start->world->rank_on_this_host()]);
    trace::set_rank(start->world->rank());
  });
  const Event started = shared->stream.record();
  try {
    wait_within(started, shared->timeout, "MPI_Init");
  } catch (...) {
    // A thread inside MPI can't be ended: it keeps what it uses until the process ends.
    if (!started.done())
      new std::shared_ptr<CommShared>(shared);
    throw;
  }
  return std::move(*start);
}

}  // namespace

std::unique_ptr<Comm> connect_mpi(const CommOptions& options) {
  check(under_launcher(),
        "mpi: start the program with mpirun or srun to run it as several processes");
  check(options.link_bandwidth == 0 && options.link_latency == 0,
        "mpi: a link is emulated between thread ranks only");
  check_timeout(options.timeout);
  auto shared = std::make_shared<CommShared>(cpu(0), options.checks, options.timeout);
  auto [world, dealt] = start_mpi(shared);
  trace::set_rank(world->rank());

  DeviceOptions device = options.device;
  const auto here = world->rank_on_this_host();
  if (device.threads == 0)
    device.threads = threads_for(dealt, here);
  set_processors(cpu(0), dealt[here]);
  join_processors(cpu(0));
  configure(cpu(0), device);

  const int ranks = world->size();
  std::vector<int> world_ranks(ranks);
  std::iota(world_ranks.begin(), world_ranks.end(), 0);
  auto comm = std::make_unique<Comm>(
      std::make_unique<MpiTransport>(std::move(world), MPI_COMM_WORLD, std::move(world_ranks), 0),
      std::move(shared));
  check(options.ranks == 0 || options.ranks == ranks,
        "ranks: {} are asked for, the launcher started {}",
        options.ranks,
        ranks);
  const char* tasks = std::getenv("SLURM_STEP_NUM_TASKS");
  check(ranks > 1 || !tasks || std::atoi(tasks) <= 1,
        "mpi: srun started {} tasks, MPI sees each alone; try srun --mpi=pmix, or mpirun",
        tasks ? tasks : "");
  return comm;
}

}  // namespace sg::dist

// What communication costs. Under mpirun: the ordered all-reduce against MPI's own, from 1 to 64
// MiB, their ratio (above 1: ordered is faster). Alone: the all-reduce of two thread ranks against
// a plain loop on the same threads that reads both inputs and writes the sum twice, the least
// memory traffic that an all-reduce can have (below 2 is good).
//   build/bin/bench_comm        mpirun -n 2 build/bin/bench_comm
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <thread>
#include <vector>

#include "core/ops.h"
#include "dist/launch.h"

#ifdef SG_MPI
#include <mpi.h>
#endif

namespace {

using namespace sg;
using namespace sg::dist;

constexpr int repeats = 9;
constexpr int64_t mebi = 1 << 20;

// Milliseconds from when all ranks are ready until the last one is done; the median of several, on
// every rank.
double measure(Comm& comm, const std::function<void()>& run) {
  std::vector<double> times;
  for (int i = 0; i < repeats; ++i) {
    comm.barrier({"bench.begin", Phase::metrics}).wait();
    const auto begin = std::chrono::steady_clock::now();
    run();
    comm.barrier({"bench.end", Phase::metrics}).wait();
    times.push_back(
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
            .count());
  }
  std::nth_element(times.begin(), times.begin() + repeats / 2, times.end());
  return times[repeats / 2];
}

void blocking_all_reduce([[maybe_unused]] Comm& comm, [[maybe_unused]] const Tensor& x) {
#ifdef SG_MPI
  comm.stream().enqueue("MPI_Allreduce", [&] {
    MPI_Allreduce(MPI_IN_PLACE,
                  x.data<float>(),
                  static_cast<int>(x.numel()),
                  MPI_FLOAT,
                  MPI_SUM,
                  MPI_COMM_WORLD);
  });
  comm.stream().synchronize();
#endif
}

void ordered_against_native(Comm& comm) {
  const auto print = [&](const auto&... columns) {
    if (comm.rank() == 0)
      fmt::print("{:>5} {:>12} {:>12} {:>8} {:>18} {:>8}\n", columns...);
    std::fflush(stdout);
  };
  print("MiB", "ordered ms", "native ms", "ratio", "MPI_Allreduce ms", "ratio");
  for (int64_t size = 1; size <= 64; size *= 2) {
    const Tensor x = full({size * mebi / 4}, 1);
    const auto with = [&](Algorithm algorithm) {
      return measure(comm, [&] { comm.all_reduce({"bench"}, x, {0.5f, algorithm}).wait(); });
    };
    const double ordered = with(Algorithm::ordered), native = with(Algorithm::native);
    const double blocking = measure(comm, [&] { blocking_all_reduce(comm, x); });
    const auto text = [](double value, int digits) {
      return fmt::format("{:.{}f}", value, digits);
    };
    print(size,
          text(ordered, 3),
          text(native, 3),
          text(native / ordered, 2),
          text(blocking, 3),
          text(blocking / ordered, 2));
  }
}

void threads_against_a_loop(Comm& comm, std::vector<float*>& memory) {
  const int64_t n = 64 * mebi / 4, half = n / 2;
  const Tensor x = full({n}, 1);
  memory[static_cast<size_t>(comm.rank())] = x.data<float>();
  comm.barrier({"bench.memory", Phase::metrics}).wait();
  float* const a = memory[0] + comm.rank() * half;
  float* const b = memory[1] + comm.rank() * half;
  const double reduce = measure(comm, [&] { comm.all_reduce({"bench"}, x, {0.5f}).wait(); });
  const double loop = measure(comm, [&] {
    for (int64_t i = 0; i < half; ++i)
      a[i] = b[i] = (a[i] + b[i]) * 0.5f;
  });
  if (comm.rank() == 0) {
    fmt::print(
        "two thread ranks, 64 MiB: all-reduce {:.2f} ms, plain loop {:.2f} ms, ratio {:.2f}\n",
        reduce,
        loop,
        reduce / loop);
  }
}

}  // namespace

int main() {
  CommOptions options;
  options.checks = Checks::never;
  if (under_launcher())
    return launch(options, ordered_against_native);
  options.ranks = 2;
  std::vector<float*> memory(2);
  return launch(options, [&](Comm& comm) { threads_against_a_loop(comm, memory); });
}

#include "dist/launch.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>
#include <vector>

#include "core/error.h"
#include "core/processors.h"
#include "core/trace.h"
#include "dist/comm/threads.h"

namespace sg::dist {
namespace {

constexpr double grace =
    10;  // seconds beyond the time-out that ranks have to end once one has failed

std::string message_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "an exception of unknown type";
  }
}

int exit_code_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& e) {
    return e.exit_code();
  } catch (...) {
    return 1;
  }
}

struct Failure {
  int rank;
  std::exception_ptr error;
  std::string record;  // the last calls of all ranks
};

// The ranks of one process and their end.
class ThreadRanks {
 public:
  ThreadRanks(const CommOptions& options, const std::function<void(Comm&)>& fn)
      : options_(options),
        fn_(fn),
        world_(std::make_shared<ThreadWorld>(
            std::max(options.ranks, 1), options.link_bandwidth, options.link_latency)),
        group_(std::make_shared<ThreadGroup>()) {
    check(options.ranks >= 0 && options.ranks <= max_devices,
          "ranks: {} thread ranks; 1 … {} are possible",
          options.ranks,
          max_devices);
    check_timeout(options.timeout);
    for (int rank = 0; rank < world_->ranks; ++rank)
      group_->world_ranks.push_back(rank);
    group_->slots.resize(world_->ranks * world_->ranks);
  }

  // `stuck` is called when ranks go on computing long after another has failed; threads can't be
  // ended from outside.
  std::optional<Failure> run(const std::function<void(const Failure&)>& stuck) {
    if (world_->ranks == 1) {
      run_rank(0);
      return failure();
    }
    std::vector<std::thread> threads;
    for (int rank = 0; rank < world_->ranks; ++rank)
      threads.emplace_back([this, rank] { run_rank(rank); });
    if (stuck)
      await_end(stuck);
    for (auto& thread : threads)
      thread.join();
    return failure();
  }

 private:
  void run_rank(int rank) {
    const DeviceGuard device(cpu(rank));
    join_processors(cpu(rank));
    trace::set_rank(rank);
    try {
      auto shared = std::make_shared<CommShared>(cpu(rank), options_.checks, options_.timeout);
      shared->stream.enqueue("rank", [rank] { trace::set_rank(rank); });
      Comm comm(std::make_unique<ThreadTransport>(world_, group_, rank, 0), std::move(shared));
      try {
        fn_(comm);
        comm.leave();
      } catch (...) {
        fail(rank);  // before comm's end, which waits for calls that peers would otherwise never
                     // join
        throw;
      }
    } catch (...) {
      fail(rank);
    }
    {
      std::lock_guard lock(world_->mutex);
      ++ended_;
    }
    world_->changed.notify_all();
  }

  void fail(int rank) {
    world_->fail(rank, message_of(std::current_exception()), std::current_exception());
  }

  void await_end(const std::function<void(const Failure&)>& stuck) {
    std::unique_lock lock(world_->mutex);
    const auto all_ended = [&] { return ended_ == world_->ranks; };
    world_->changed.wait(lock, [&] { return world_->failed || all_ended(); });
    if (world_->changed.wait_for(
            lock, std::chrono::duration<double>(options_.timeout + grace), all_ended))
      return;
    lock.unlock();
    stuck(*failure());
  }

  std::optional<Failure> failure() {
    std::lock_guard lock(world_->mutex);
    if (!world_->failed)
      return std::nullopt;
    std::string record;
    for (int rank = 0; rank < world_->ranks; ++rank) {
      record += format_board(rank, world_->boards[rank]);
    }
    if (!record.empty())
      record = "last calls, latest first:\n" + record;
    return Failure{world_->failed_rank, world_->error, record};
  }

  const CommOptions options_;
  const std::function<void(Comm&)>& fn_;
  const std::shared_ptr<ThreadWorld> world_;
  const std::shared_ptr<ThreadGroup> group_;
  int ended_ = 0;
};

// One write, so that ranks' lines don't mix; the line that matters last, where people look. Calls
// say nothing about a mistake in what the program was asked for.
void report(int ranks, int rank, const std::exception_ptr& error, const std::string& record) {
  const bool usage = exit_code_of(error) == static_cast<int>(ErrorKind::usage);
  std::string text;
  if (ranks > 1 && !usage)
    text += record;
  if (ranks > 1)
    text += fmt::format("rank {}: ", rank);
  text += message_of(error) + "\n";
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

int launch_threads(const CommOptions& options, const std::function<void(Comm&)>& fn) {
  const int ranks = std::max(options.ranks, 1);
  ThreadRanks threads(options, fn);
  const std::vector<Processors> allowed(ranks, process_processors());
  const std::vector<Processors> dealt = deal_processors(allowed, numa_nodes());
  for (int rank = 0; rank < ranks; ++rank) {
    DeviceOptions device = options.device;
    const int i = rank;
    if (device.threads == 0)
      device.threads = threads_for(dealt, i);
    set_processors(cpu(rank), dealt[i]);
    configure(cpu(rank), device);
  }
  const auto failure = threads.run([&](const Failure& f) {
    report(ranks, f.rank, f.error, f.record + "other ranks didn't end; the process does\n");
    std::_Exit(exit_code_of(f.error));
  });
  if (!failure)
    return 0;
  report(ranks, failure->rank, failure->error, failure->record);
  return exit_code_of(failure->error);
}

// A failure between ranks is seen by many at once; the first to report it ends the job.
void let_lower_ranks_report(int rank) {
  std::this_thread::sleep_for(std::chrono::milliseconds(50 * std::min(rank, 20)));
}

int launch_mpi(const CommOptions& options, const std::function<void(Comm&)>& fn) {
  const auto comm = connect_mpi(options);
  try {
    const DeviceGuard device(comm->device());
    fn(*comm);
    comm->leave();
    return 0;
  } catch (...) {
    const auto error = std::current_exception();
    if (exit_code_of(error) == static_cast<int>(ErrorKind::peer))
      let_lower_ranks_report(comm->rank());
    report(comm->size(), comm->rank(), error, comm->flight_record());
    comm->abort(message_of(error), exit_code_of(error));
    return exit_code_of(error);
  }
}

int ranks_of(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    std::string_view argument = argv[i];
    if (argument == "--ranks" && i + 1 < argc)
      argument = argv[i + 1];
    else if (argument.rfind("--ranks=", 0) == 0)
      argument.remove_prefix(8);
    else
      continue;
    int ranks = 0;
    const auto [end, error] =
        std::from_chars(argument.data(), argument.data() + argument.size(), ranks);
    check(error == std::errc{} && end == argument.data() + argument.size() && ranks > 0,
          "--ranks: \"{}\" is no number of ranks",
          argument);
    return ranks;
  }
  return 0;
}

}  // namespace

namespace {

// The options' devices while a run lasts, where they say anything of them.
class RunDevices {
 public:
  explicit RunDevices(const CommOptions& options)
      : RunDevices(options.device.capacity != Pool::unlimited) {
    if (options.host_memory != Pool::unlimited) {
      pool(host).set_capacity(options.host_memory);
      devices_.push_back(host);
    }
    if (!limited_ && options.device.threads == 0)
      return;
    for (int rank = 0; rank < std::max(options.ranks, 1); ++rank) {
      configure(cpu(rank), options.device);
      devices_.push_back(cpu(rank));
    }
  }
  ~RunDevices() {
    for (const Device device : devices_)
      if (limited_ || device == host)
        pool(device).set_capacity(Pool::unlimited);
  }
  RunDevices(const RunDevices&) = delete;
  RunDevices& operator=(const RunDevices&) = delete;

 private:
  // Complete before the devices are set up: where one refuses, the others are given back.
  explicit RunDevices(bool limited) : limited_(limited) {}

  const bool limited_;
  std::vector<Device> devices_;
};

}  // namespace

void run_threads(const CommOptions& options, const std::function<void(Comm&)>& fn) {
  ThreadRanks ranks(options, fn);
  const RunDevices devices(options);
  if (const auto failure = ranks.run(nullptr))
    std::rethrow_exception(failure->error);
}

void run_threads(int ranks, const std::function<void(Comm&)>& fn) {
  CommOptions options;
  options.ranks = ranks;
  run_threads(options, fn);
}

int launch(const CommOptions& options, const std::function<void(Comm&)>& fn) {
  try {
    pool(host).set_capacity(options.host_memory);
    return under_launcher() ? launch_mpi(options, fn) : launch_threads(options, fn);
  } catch (...) {
    report(1, 0, std::current_exception(), {});
    return exit_code_of(std::current_exception());
  }
}

int launch(int argc, char** argv, const std::function<void(Comm&)>& fn) {
  CommOptions options;
  try {
    options.ranks = ranks_of(argc, argv);
  } catch (...) {
    report(1, 0, std::current_exception(), {});
    return exit_code_of(std::current_exception());
  }
  return launch(options, fn);
}

}  // namespace sg::dist

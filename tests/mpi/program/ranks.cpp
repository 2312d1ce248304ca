// One rank of a job that mpirun starts: does what its first argument says and fails where it says
// so.
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <functional>
#include <map>
#include <thread>

#include "autograd/ops.h"
#include "dist/engine.h"
#include "dist/launch.h"
#include "tests/dist/comm_cases.h"

namespace sg::dist {
namespace {

void print(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

// Every rank's lines, in rank order, from rank 0.
void print_all(Comm& comm, const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines)
    text += fmt::format("{}: {}\n", comm.rank(), line);
  for (const std::string& of_rank : comm.all_gather_bytes({"lines", Phase::metrics}, text)) {
    if (comm.rank() == 0)
      print(of_rank);
  }
}

void split(Comm& comm) {
  const auto part = comm.split(comm.rank() % 2, -comm.rank());
  const Tensor x = full({3}, comm.rank());
  part->all_reduce({"part"}, x).wait();
  print_all(comm,
            {fmt::format("{} of {}: {}", part->rank(), part->size(), x.to_vector<float>()[0])});
}

void native(Comm& comm) {
  for (const DType dtype : cases::float_types) {
    const Tensor x = full({1001}, comm.rank() + 1, dtype),
                 shard = empty({comm.rank() == 0 ? 1001 : 0}, dtype);
    comm.reduce_scatter(
            {"scatter"}, x, Shards::whole(1001, comm.size(), 0), shard, {2, Algorithm::native})
        .wait();
    comm.all_reduce({"reduce"}, x, {0.5f, Algorithm::native}).wait();
    const auto value = cast(x, DType::f32).to_vector<float>()[1000];
    print_all(comm,
              {fmt::format("{} {} {}",
                           name_of(dtype),
                           value,
                           shard.numel() ? cast(shard, DType::f32).to_vector<float>()[7] : -1)});
  }
}

void not_finite(Comm& comm) {
  const Tensor x = full({1000}, comm.rank() == 1 ? 1e39 : 1);
  Work work = comm.all_reduce({"grad"}, x);
  work.wait();
  const auto found = work.nonfinite();
  print_all(comm,
            {found ? fmt::format("rank {} offset {}", found->rank, found->offset) : "finite"});
}

// Rank 1 comes to its fault after two calls that all make.
void with_fault(Comm& comm, const std::function<void(const Tensor&)>& fault) {
  const Tensor x = zeros({8});
  comm.all_reduce({"first"}, x).wait();
  comm.all_reduce({"second"}, x).wait();
  if (comm.rank() == 1)
    fault(x);
  comm.all_reduce({"third"}, x).wait();
  comm.barrier({"end"}).wait();
  print("not reached\n");
}

// Trains w on w²; rank 1 dies in step 2, at `where`. In the optimizer: once the update's first
// value has changed, while the rest of the 64 MiB is under way.
void killed_in(Comm& comm, const std::string& where) {
  Variable w(full({int64_t{1} << 24}, 1), true, "w");
  const auto engine = initialize({Unit{"model", {w}}}, {.engine = EngineKind::zero2}, comm);
  for (int step = 0; step < 4; ++step) {
    const bool now = comm.rank() == 1 && step == 2;
    const Tensor master = engine->state().front().values;
    const Variable loss = engine->forward([&] {
      if (now && where == "forward")
        raise(SIGKILL);
      return mean(w * w);
    });
    engine->backward(loss);
    std::thread killer;
    if (now && where == "optimizer") {
      const auto* first = static_cast<const volatile float*>(master.data<float>());
      killer = std::thread([first, before = *first] {
        while (*first == before) {
        }
        raise(SIGKILL);
      });
    }
    engine->step();
    if (killer.joinable())
      killer.join();
  }
  print("not reached\n");
}

int run(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  const std::map<std::string, std::function<void(Comm&)>> modes = {
      {"digests",
       [](Comm& comm) {
         print_all(comm, cases::reductions(comm, Algorithm::ordered));
         print_all(comm, cases::reductions(comm, Algorithm::ring));
         print_all(comm, cases::moves(comm));
       }},
      {"split", split},
      {"native", native},
      {"nan", not_finite},
      {"throws",
       [](Comm& comm) {
         with_fault(comm,
                    [](const Tensor&) { fail(ErrorKind::bad_input, "the data file is empty"); });
       }},
      {"killed", [](Comm& comm) { with_fault(comm, [](const Tensor&) { raise(SIGKILL); }); }},
      {"killed-in-forward", [](Comm& comm) { killed_in(comm, "forward"); }},
      {"killed-in-optimizer", [](Comm& comm) { killed_in(comm, "optimizer"); }},
      {"stopped", [](Comm& comm) { with_fault(comm, [](const Tensor&) { raise(SIGSTOP); }); }},
      {"slow", [](Comm& comm) { with_fault(comm, [](const Tensor&) { sleep(60); }); }},
      {"leaves",
       [](Comm& comm) {
         comm.barrier({"start"}).wait();
         if (comm.rank() != 1)
           comm.barrier({"end"}).wait();
       }},
      {"differs",
       [](Comm& comm) {
         with_fault(comm, [&](const Tensor& x) { comm.broadcast({"third"}, x, 0).wait(); });
       }},
      {"skips",
       [](Comm& comm) {
         with_fault(comm, [&](const Tensor& x) { comm.all_reduce({"fourth"}, x).wait(); });
       }},
      {"disagrees",
       [](Comm& comm) {
         comm.agree({"start"}, {{"seed", std::to_string(comm.rank())}});
       }},
  };
  CommOptions options;
  options.timeout = 2;
  options.ranks = argc > 2 ? std::atoi(argv[2]) : 0;
  return launch(options, [&](Comm& comm) {
    check(modes.contains(mode), "ranks: no mode \"{}\"", mode);
    modes.at(mode)(comm);
  });
}

}  // namespace
}  // namespace sg::dist

int main(int argc, char** argv) {
  return sg::dist::run(argc, argv);
}

// What overlap is worth: two thread ranks over an emulated link that makes a step's communication half as long as its
// backward pass, and the part of it that computation waits for, with overlap and without.
//   build/bin/bench_overlap [dp|ddp|zero1|zero2|zero3]...
#include <fmt/core.h>

#include <chrono>
#include <cstdio>
#include <vector>

#include "core/ops.h"
#include "dist/engine.h"
#include "dist/flat_space.h"
#include "dist/launch.h"
#include "models/gpt2.h"

namespace {

using namespace sg;
using Clock = std::chrono::steady_clock;

constexpr models::Gpt2Options size = {.layers = 6, .heads = 4, .width = 192, .context = 64, .vocab = 256};
constexpr int64_t rows = 8;
constexpr int64_t bucket_bytes = 512 << 10;
constexpr int warm_steps = 2, steps = 8;

struct Measured {  // means of a step of rank 0, in seconds
  double backward = 0, communication = 0, exposed = 0;
  double bytes = 0;
  size_t buckets = 0;
};

void measure(dist::Comm& comm, const dist::Options& options, Measured& result) {
  models::Gpt2 model(size);
  result.buckets = dist::FlatSpace(model.parameters(), options, comm.size()).buckets().size();
  auto engine = dist::initialize(model.units(), options, comm);
  const Tensor ids = zeros({rows, size.context}, DType::i32);
  for (int step = 0; step < warm_steps + steps; ++step) {
    if (step == warm_steps) {
      engine->synchronize();
      comm.barrier({"warm"}).wait();
      comm.traffic().reset();
      result.backward = 0;
    }
    const Variable loss = engine->forward([&] { return model.loss(ids, ids); });
    const auto begin = Clock::now();
    engine->backward(loss);
    result.backward += std::chrono::duration<double>(Clock::now() - begin).count() / steps;
    engine->step();
  }
  engine->synchronize();
  result.communication = comm.traffic().busy_seconds() / steps;
  result.exposed = comm.traffic().exposed_seconds() / steps;
  const dist::Traffic traffic = comm.traffic().total(dist::Phase::step);
  result.bytes = static_cast<double>(std::max(traffic.sent, traffic.received)) / steps;
}

Measured run(dist::EngineKind engine, double bandwidth, bool overlap) {
  dist::CommOptions comm_options;
  comm_options.ranks = 2;
  comm_options.link_bandwidth = bandwidth;
  const dist::Options options{
      .engine = engine, .overlap = overlap, .first_bucket_bytes = bucket_bytes, .bucket_bytes = bucket_bytes};
  Measured of_rank_0;
  dist::run_threads(comm_options, [&](dist::Comm& comm) {
    Measured own;
    measure(comm, options, own);
    if (comm.rank() == 0) of_rank_0 = own;
  });
  return of_rank_0;
}

}  // namespace

int main(int argc, char** argv) {
  for (int rank = 0; rank < 2; ++rank) configure(cpu(rank), {.threads = 1});
  std::vector<std::string> engines(argv + 1, argv + argc);
  if (engines.empty()) engines = {"ddp"};
  try {
    for (const std::string& name : engines) {
      const dist::EngineKind engine = dist::parse_engine(name);
      const Measured alone = run(engine, 0, false);
      const double backward = alone.backward - alone.exposed;
      const double bandwidth = alone.bytes / (0.5 * backward);
      fmt::print("{}: {} buckets, backward {:.1f} ms, a link of {:.0f} MB/s\n", name, alone.buckets, 1e3 * backward,
                 1e-6 * bandwidth);
      for (const bool overlap : {true, false}) {
        const Measured m = run(engine, bandwidth, overlap);
        fmt::print("  overlap {:<3}  communication {:6.1f} ms, exposed {:6.1f} ms: {:.2f} of it\n",
                   overlap ? "on" : "off", 1e3 * m.communication, 1e3 * m.exposed, m.exposed / m.communication);
      }
    }
  } catch (const Error& e) {
    std::fprintf(stderr, "bench_overlap: %s\n", e.what());
    return e.exit_code();
  }
  return 0;
}

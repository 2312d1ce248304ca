// What overlap is worth: two thread ranks over an emulated link that makes a step's communication
// under ddp half as long as its backward pass, and the part of it that computation waits for, with
// overlap and without.
//   build/bin/bench_overlap [dp|ddp|zero1|zero2|zero3]...
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

#include "core/ops.h"
#include "dist/engine.h"
#include "dist/engines/flat_space.h"
#include "dist/launch.h"
#include "models/gpt2/gpt2.h"

namespace {

using namespace sg;
using dist::EngineKind;
using Clock = std::chrono::steady_clock;

constexpr models::Gpt2Options size = {
    .layers = 6, .heads = 4, .width = 192, .context = 64, .vocab = 256};
constexpr int64_t rows = 8;
constexpr int64_t bucket_bytes = 512 << 10;
constexpr int warm_steps = 2, steps = 8;
constexpr double wanted = 0.5;  // communication over backward

struct Measured {  // medians of a step of rank 0, in seconds
  double step = 0, backward = 0, communication = 0, exposed = 0;
  double bytes = 0;
  size_t buckets = 0;
};

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// `backward` is without what it waited for.
Measured measure(dist::Comm& comm, const dist::Options& options) {
  models::Gpt2 model(size);
  auto engine = dist::initialize(model.units(), options, comm);
  const Tensor ids = zeros({rows, size.context}, DType::i32);
  dist::TrafficLedger& traffic = comm.traffic();
  std::vector<double> step_seconds, backward, communication, exposed;
  for (int step = 0; step < warm_steps + steps; ++step) {
    if (step == warm_steps)
      traffic.reset();
    const double busy_before = traffic.busy_seconds(), exposed_before = traffic.exposed_seconds();
    const auto begin = Clock::now();
    const Variable loss = engine->forward([&] { return model.loss(ids, ids); });
    const double waited_before = traffic.exposed_seconds();
    const auto middle = Clock::now();
    engine->backward(loss);
    const double backward_seconds =
        seconds_since(middle) - (traffic.exposed_seconds() - waited_before);
    engine->step();
    if (step < warm_steps)
      continue;
    step_seconds.push_back(seconds_since(begin));
    backward.push_back(backward_seconds);
    communication.push_back(traffic.busy_seconds() - busy_before);
    exposed.push_back(traffic.exposed_seconds() - exposed_before);
  }
  engine->synchronize();
  const dist::Traffic bytes = traffic.total(dist::Phase::step);
  return {median(step_seconds),
          median(backward),
          median(communication),
          median(exposed),
          static_cast<double>(std::max(bytes.sent, bytes.received)) / steps,
          dist::FlatSpace(model.parameters(), options, comm.size()).buckets().size()};
}

Measured run(EngineKind engine, double bandwidth, bool overlap) {
  dist::CommOptions comm_options;
  comm_options.ranks = 2;
  comm_options.checks = dist::Checks::never;  // they'd be part of the time
  comm_options.link_bandwidth = bandwidth;
  const dist::Options options{.engine = engine,
                              .overlap = overlap,
                              .first_bucket_bytes = bucket_bytes,
                              .bucket_bytes = bucket_bytes};
  Measured of_rank_0;
  dist::run_threads(comm_options, [&](dist::Comm& comm) {
    const Measured own = measure(comm, options);
    if (comm.rank() == 0)
      of_rank_0 = own;
  });
  return of_rank_0;
}

// Bytes a second: what ddp's calls cost without a link is part of the time that is wanted.
double find_link() {
  const Measured alone = run(EngineKind::ddp, 0, false);
  double left = wanted * alone.backward - alone.communication;
  check(left > 0,
        "bench_overlap: communication without a link takes {:.1f} ms, backward {:.1f} ms: no link "
        "is needed",
        1e3 * alone.communication,
        1e3 * alone.backward);
  const Measured linked = run(EngineKind::ddp, alone.bytes / left, false);
  left += wanted * linked.backward - linked.communication;  // sleeping has a cost of its own
  const double bandwidth = alone.bytes / std::max(left, 0.1 * wanted * alone.backward);
  fmt::print(
      "ddp: {} buckets, backward {:.1f} ms; a link of {:.0f} MB/s is to make communication {:.2f} "
      "of that\n",
      alone.buckets,
      1e3 * linked.backward,
      1e-6 * bandwidth,
      wanted);
  return bandwidth;
}

}  // namespace

int main(int argc, char** argv) {
  for (int rank = 0; rank < 2; ++rank)
    configure(cpu(rank), {.threads = 1});
  std::vector<std::string> engines(argv + 1, argv + argc);
  if (engines.empty())
    engines = {"ddp"};
  try {
    const double bandwidth = find_link();
    fmt::print("{:<7}{:>9}{:>10}{:>12}{:>16}{:>18}{:>13}{:>17}\n",
               "engine",
               "overlap",
               "step, ms",
               "backward",
               "communication",
               "of backward",
               "exposed",
               "of communication");
    for (const std::string& name : engines) {
      const EngineKind engine = dist::parse_word<EngineKind>(name);
      for (const bool overlap : {true, false}) {
        const Measured m = run(engine, bandwidth, overlap);
        fmt::print("{:<7}{:>9}{:>10.1f}{:>12.1f}{:>16.1f}{:>18.2f}{:>13.1f}{:>17.2f}\n",
                   name,
                   overlap ? "on" : "off",
                   1e3 * m.step,
                   1e3 * m.backward,
                   1e3 * m.communication,
                   m.communication / m.backward,
                   1e3 * m.exposed,
                   m.exposed / m.communication);
      }
    }
  } catch (const Error& e) {
    std::fprintf(stderr, "bench_overlap: %s\n", e.what());
    return e.exit_code();
  }
  return 0;
}

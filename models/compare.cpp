// `compare`: the same training under several engines, side by side.
#include <cstdio>

#include "core/device.h"
#include "dist/launch.h"
#include "models/family.h"
#include "models/trainer.h"

namespace sg::models {
namespace {

// Engines that this group can run, in the order of the ladder.
std::vector<std::string> engines_of(const CompareOptions& options, const dist::Comm& comm) {
  if (!options.engines.empty()) return options.engines;
  std::vector<std::string> engines = {"ddp", "zero1", "zero2", "zero3"};
  if (!dist::under_launcher()) engines.insert(engines.begin(), "dp");
  if (comm.size() == 1) engines.insert(engines.begin(), "none");
  return engines;
}

double mebibytes(const Json& bytes) { return bytes.get<double>() / 0x1p20; }

// What rank 0 sent in steps, per step: "reduce_scatter 1.5 all_gather 1.5".
std::string sent_per_step(const Json& traffic, int64_t steps) {
  std::string text;
  for (const auto& [operation, phases] : traffic.items())
    if (phases.contains("step"))
      text += fmt::format("  {} {:.2f}", operation, mebibytes(phases["step"]["sent"]) / static_cast<double>(steps));
  return text.empty() ? "  nothing" : text;
}

void print_row(const std::string& engine, const Json& receipt, bool same_bits, int64_t steps) {
  const Json& memory = receipt["memory"]["0"];
  std::printf("%-7s %9.1f %9.1f %10.2f %10.2f %10.2f %10.2f   %-9s%s\n", engine.c_str(),
              receipt["median_step_ms"].get<double>(), receipt["exposed_comm_ms"].get<double>(),
              mebibytes(memory["parameters"]), mebibytes(memory["gradients"]), mebibytes(memory["optimizer"]),
              mebibytes(memory["total"]), same_bits ? "equal" : "DIFFERENT",
              sent_per_step(receipt["traffic"]["0"], steps).c_str());
  std::fflush(stdout);
}

}  // namespace

void compare(const Family& family, const CompareOptions& options, dist::Comm& comm) {
  TrainOptions train = options.train;
  train.quiet = true;
  train.show_mfu = false;
  const Dataset data = open_data(family, train);
  if (comm.rank() == 0)
    std::printf(
        "%s %s on %d ranks, %lld steps; memory: peak MiB of rank 0; sent: MiB of rank 0 per step\n%-7s %9s %9s "
        "%10s %10s %10s %10s   %-9s  %s\n",
        family.name.c_str(), train.size.size.c_str(), comm.size(), static_cast<long long>(train.steps), "engine",
        "step ms", "exposed", "parameters", "gradients", "optimizer", "total", "bits", "sent");
  Json first;
  for (const std::string& engine : engines_of(options, comm)) {
    train.engine.engine = dist::parse_engine(engine);
    comm.traffic().reset();
    pool(comm.device()).reset_peaks();
    Trainer trainer(family, train, data, comm);
    trainer.run();
    const Json receipt = trainer.receipt();
    if (first.is_null()) first = receipt;
    const bool same_bits =
        receipt["loss_bits"] == first["loss_bits"] && receipt["params_sha256"] == first["params_sha256"];
    if (comm.rank() == 0) print_row(engine, receipt, same_bits, train.steps);
  }
}

}  // namespace sg::models

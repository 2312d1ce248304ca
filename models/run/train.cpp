// `train`: options in, checkpoints and a receipt out.
#include "core/io/output_file.h"
#include "dist/checkpoint/ranks.h"
#include "models/run/commands.h"
#include "models/run/run_folder.h"
#include "models/run/trainer.h"

namespace sg::models {
namespace {

// What only a look at the disk can refuse. Rank 0 looks, and every rank is told.
void take_folder(std::optional<RunFolder>& folder, TrainOptions& options, dist::Comm& comm) {
  comm.agree({"train.folder", dist::Phase::setup},
             {{"out", options.out},
              {"resume", options.resume ? "on" : "off"},
              {"overwrite", options.overwrite ? "on" : "off"}});
  const auto looked = dist::run_on_all(dist::ranks_of(comm), [&] {
    if (comm.rank() != 0)
      return std::string();
    if (!options.out.empty())
      options.out = folder.emplace(options.out).path();
    check_reports(options);
    const auto steps = options.out.empty() ? std::nullopt : steps_held(options.out);
    check(!steps || options.resume || options.overwrite,
          "{} holds a run of {} steps: --resume, another --out, or --overwrite",
          options.out,
          steps.value_or(0));
    return options.out;
  });
  options.out = looked[0];
}

}  // namespace

void train(const Family& family, const TrainOptions& given, dist::Comm& comm) {
  TrainOptions options = given;
  if (options.resume && !options.resume->empty())
    options.out = *options.resume;
  check(!options.resume || !options.out.empty(),
        "train: --resume needs a folder: --resume DIR, or --out DIR");
  check(!options.overwrite || !options.out.empty(), "train: --overwrite needs a folder: --out DIR");
  check(!options.overwrite || !options.resume,
        "train: --overwrite and --resume contradict each other");
  std::optional<RunFolder> folder;
  take_folder(folder, options, comm);
  take_sizes(family, options, comm);
  Dataset data = open_data(family, options);
  Trainer trainer(family, options, std::move(data), comm);
  const bool finished = trainer.run();
  if (finished && !options.receipt.empty()) {
    const Json receipt = trainer.receipt();
    if (comm.rank() == 0)
      write_output(options.receipt, receipt.dump(2) + "\n");
  }
}

}  // namespace sg::models

// `train`: options in, checkpoints and a receipt out.
#include "core/io/atomic_file.h"
#include "models/run/commands.h"
#include "models/run/trainer.h"

namespace sg::models {
void train(const Family& family, const TrainOptions& given, dist::Comm& comm) {
  TrainOptions options = given;
  if (options.resume && !options.resume->empty()) options.out = *options.resume;
  check(!options.resume || !options.out.empty(), "train: --resume needs a folder: --resume DIR, or --out DIR");
  if (!options.out.empty() && comm.rank() == 0) create_folders(options.out);
  Dataset data = open_data(family, options);
  Trainer trainer(family, options, std::move(data), comm);
  const bool finished = trainer.run();
  if (finished && !options.receipt.empty()) {
    const Json receipt = trainer.receipt();
    if (comm.rank() == 0) write_file_atomically(options.receipt, receipt.dump(2) + "\n");
  }
}

}  // namespace sg::models

// `train`: options in, checkpoints and a receipt out.
#include "core/atomic_file.h"
#include "core/trace.h"
#include "models/family.h"
#include "models/trainer.h"

namespace sg::models {
namespace {

// Records from construction on; one rank writes the file, where one is wanted.
class Tracing {
 public:
  Tracing(const std::string& file, const dist::Comm& comm) : writes_(!file.empty() && comm.rank() == 0) {
    trace::set_rank(comm.rank());
    if (writes_) trace::start(file);
  }
  void finish() const {
    if (writes_) trace::stop();
  }

 private:
  const bool writes_;
};

}  // namespace

void train(const Family& family, const TrainOptions& given, dist::Comm& comm) {
  TrainOptions options = given;
  if (options.resume && !options.resume->empty()) options.out = *options.resume;
  check(!options.resume || !options.out.empty(), "train: --resume needs a folder: --resume DIR, or --out DIR");
  if (!options.out.empty() && comm.rank() == 0) create_folders(options.out);
  const Tracing tracing(options.trace, comm);
  Dataset data = open_data(family, options);
  Trainer trainer(family, options, std::move(data), comm);
  const bool finished = trainer.run();
  if (finished && !options.receipt.empty()) {
    const Json receipt = trainer.receipt();
    if (comm.rank() == 0) write_file_atomically(options.receipt, receipt.dump(2) + "\n");
  }
  tracing.finish();
}

}  // namespace sg::models

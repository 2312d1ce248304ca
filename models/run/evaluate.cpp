// `eval`: the validation loss of a trained model.
#include <cmath>
#include <cstdio>

#include "models/run/commands.h"
#include "models/run/load.h"
#include "models/run/validation.h"

namespace sg::models {

void evaluate(const Family& family, const EvalOptions& options, dist::Comm& comm) {
  const Loaded loaded = load_model(family, options.from);
  DataOptions data_options = options.data;
  data_options.vocabulary = loaded.model->vocab();
  data_options.restored = loaded.tokenizer;
  const Dataset data = open_dataset(data_options);
  check(ErrorKind::bad_input,
        data.validation_size() > 0,
        "eval: {} has no validation split: --val-fraction is 0",
        data.path());
  const ValidationOptions validation{.rows = options.batch, .batches = options.batches};
  const double loss = validation_loss(*loaded.model, data, validation, comm);
  check(ErrorKind::numeric,
        std::isfinite(loss),
        "eval: the validation loss of {} after step {} is {}",
        options.from,
        loaded.step,
        loss);
  if (comm.rank() == 0)
    std::printf(
        "validation loss %.4f after step %lld\n", loss, static_cast<long long>(loaded.step));
}

}  // namespace sg::models

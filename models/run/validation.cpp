#include "models/run/validation.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "autograd/targets.h"
#include "core/ops.h"

namespace sg::models {
namespace {

struct BatchLoss {
  double loss = 0;  // the mean over the batch, an f32
  int64_t targets = 0;
};

// One pass over this rank's batches: rank, rank + N, … Every rank runs equally often, since engines
// may communicate in each forward pass; what is beyond the end is computed and dropped.
std::vector<BatchLoss> own_losses(LanguageModel& model,
                                  const Dataset& data,
                                  int64_t rows,
                                  int64_t count,
                                  const dist::Comm& comm) {
  NoGrad guard;
  std::vector<BatchLoss> losses;
  for (int64_t first = 0; first < count; first += comm.size()) {
    const int64_t number = first + comm.rank();
    const auto index = static_cast<uint64_t>(std::min(number, count - 1));
    const Batch batch = data.validation_batch(index, rows, model.context());
    const float loss = model.loss(batch.tokens, batch.targets).item();
    if (number < count)
      losses.push_back({loss, count_targets(batch.targets)});
  }
  return losses;
}

// Every rank's losses by batch number.
std::vector<BatchLoss> gather(const std::vector<BatchLoss>& own, int64_t count, dist::Comm& comm) {
  const std::string_view bytes(reinterpret_cast<const char*>(own.data()),
                               own.size() * sizeof(BatchLoss));
  const std::vector<std::string> parts =
      comm.all_gather_bytes({"validation.losses", dist::Phase::eval}, bytes);
  std::vector<BatchLoss> all(static_cast<size_t>(count));
  for (size_t number = 0; number < all.size(); ++number) {
    const std::string& part = parts[number % parts.size()];
    std::memcpy(
        &all[number], part.data() + number / parts.size() * sizeof(BatchLoss), sizeof(BatchLoss));
  }
  return all;
}

}  // namespace

double validation_loss(LanguageModel& model,
                       const Dataset& data,
                       const ValidationOptions& options,
                       dist::Comm& comm) {
  auto count = static_cast<int64_t>(data.validation_batches(options.rows, model.context()));
  if (options.batches > 0)
    count = std::min(count, options.batches);
  const bool training = model.training();
  model.eval();
  const std::vector<BatchLoss> own = own_losses(model, data, options.rows, count, comm);
  model.train(training);

  std::vector<double> sums;
  double targets = 0;
  for (const BatchLoss& batch : gather(own, count, comm)) {
    sums.push_back(batch.loss * static_cast<double>(batch.targets));
    targets += static_cast<double>(batch.targets);
  }
  return tree_sum(sums) / targets;
}

}  // namespace sg::models

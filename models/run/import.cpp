// `import`: a Hugging Face folder's weights as the checkpoint of a run that hasn't begun, streamed
// tensor by tensor.
#include <cstdio>

#include "core/device.h"
#include "core/io/atomic_file.h"
#include "core/ops.h"
#include "dist/checkpoint/checkpoint.h"
#include "models/run/commands.h"
#include "models/run/initial_weights.h"
#include "models/run/run_folder.h"
#include "models/run/saved_run.h"

namespace sg::models {
namespace {

// Masters on meta, which are read when they are written.
std::vector<dist::StateEntry> entries_of(const InitialWeights& weights) {
  std::vector<dist::StateEntry> entries;
  for (const TensorInfo& p : weights.parameters()) {
    const int64_t elements = numel(p.shape);
    const Tensor values = empty({elements}, DType::f32, unplaced);
    entries.push_back({p.name, "master", p.shape, 0, elements, values, true});
  }
  return entries;
}

Tensor read_flat(const InitialWeights& weights, const dist::StateEntry& entry) {
  const CategoryScope scope(Category::data);
  const Tensor value = empty(entry.shape);
  weights.read(entry.parameter, value);
  return value.flatten();
}

}  // namespace

void import_model(const Family& family, const ImportOptions& options) {
  configure(current_device(), options.group.device);
  const RunFolder folder(options.to);
  check(!steps_held(folder.path()), "--to {}: holds a run already; import elsewhere", options.to);
  check(ErrorKind::bad_input,
        is_hugging_face(options.from),
        "{}: there is no config.json; a Hugging Face folder is needed",
        options.from);
  const auto weights = InitialWeights::open(family, options.from);
  const std::string hash = weights->hash();
  SavedRun run;
  run.family = family.name, run.size = weights->size(), run.tokenizer = weights->tokenizer();
  dist::Checkpoint checkpoint{.tag = "step-000000", .entries = entries_of(*weights)};
  checkpoint.state = run.text();
  checkpoint.run = unique_suffix().substr(5);
  checkpoint.values = [&](const dist::StateEntry& entry) { return read_flat(*weights, entry); };
  dist::save_checkpoint(folder.path(), checkpoint);
  std::printf("%s: %lld parameters in %zu tensors read from %s, sha256 %s\n",
              options.to.c_str(),
              static_cast<long long>(weights->elements()),
              weights->parameters().size(),
              options.from.c_str(),
              hash.c_str());
}

}  // namespace sg::models

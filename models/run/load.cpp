#include "models/run/load.h"

#include "core/device.h"
#include "dist/checkpoint/checkpoint.h"

namespace sg::models {

Loaded load_model(const Family& family, const std::string& folder) {
  const dist::CheckpointReader checkpoint(folder);
  const SavedRun saved = SavedRun::parse(checkpoint.state(), checkpoint.path());
  check(ErrorKind::bad_input, saved.family == family.name, "{}: {} holds a model of family {}", family.name,
        checkpoint.path(), saved.family);
  Loaded loaded{family.build(saved.size, saved.seed), Tokenizer::from_json(saved.tokenizer, checkpoint.path()),
                static_cast<int64_t>(checkpoint.step())};
  for (const Variable& p : loaded.model->parameters()) checkpoint.read_value(p.name(), p.tensor().flatten());
  loaded.model->eval();
  return loaded;
}

std::unique_ptr<LanguageModel> build_on_meta(const Family& family, const SizeOptions& size, uint64_t seed) {
  const DeviceGuard guard(unplaced);
  return family.build(size, seed);
}

}  // namespace sg::models

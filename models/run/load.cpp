#include "models/run/load.h"

#include <algorithm>
#include <cmath>

#include "core/device.h"
#include "dist/checkpoint/checkpoint.h"
#include "models/run/run_folder.h"

namespace sg::models {

namespace {

constexpr int64_t looked_at_once = int64_t{1} << 20;

void check_sizes(const Family& family,
                 const SavedRun& saved,
                 const dist::CheckpointReader& checkpoint) {
  std::map<std::string, Shape> held = checkpoint.parameters("master");
  held.merge(checkpoint.parameters("frozen"));
  check(ErrorKind::bad_input,
        *saved.size.layers <= static_cast<int64_t>(held.size()),
        "{}: {} parameters are too few for {} layers",
        checkpoint.path(),
        held.size(),
        *saved.size.layers);
  try {
    const auto model = build_on_meta(family, saved.size, saved.seed);
    for (const Variable& p : model->parameters()) {
      const auto found = held.find(p.name());
      check(found != held.end() && found->second == p.shape(),
            "a model of its sizes has {} of shape {}, which is {}",
            p.name(),
            p.shape(),
            found == held.end() ? "not there" : to_string(found->second));
    }
  } catch (const Error& e) {
    fail(ErrorKind::bad_input, "{}: {}", checkpoint.path(), e.what());
  }
}

}  // namespace

Loaded load_model(const Family& family, const std::string& folder) {
  const dist::CheckpointReader checkpoint(followed(folder));
  const SavedRun saved = saved_run_of(family, checkpoint);
  Loaded loaded{family.build(saved.size, saved.seed),
                Tokenizer::from_json(saved.tokenizer, checkpoint.path()),
                static_cast<int64_t>(checkpoint.step())};
  check(ErrorKind::bad_input,
        loaded.tokenizer.size() <= loaded.model->vocab(),
        "{}: its tokenizer has {} ids, its model holds {}",
        checkpoint.path(),
        loaded.tokenizer.size(),
        loaded.model->vocab());
  for (const Variable& p : loaded.model->parameters()) {
    checkpoint.read_value(p.name(), p.tensor().flatten());
    check_finite(p.tensor(), p.name(), checkpoint.path());
  }
  loaded.model->eval();
  return loaded;
}

SavedRun saved_run_of(const Family& family, const dist::CheckpointReader& checkpoint) {
  SavedRun saved = SavedRun::parse(checkpoint.state(), checkpoint.path());
  check(ErrorKind::bad_input,
        saved.family == family.name,
        "{}: {} holds a model of family {}",
        family.name,
        checkpoint.path(),
        saved.family);
  check_sizes(family, saved, checkpoint);
  return saved;
}

void check_finite(const Tensor& values, const std::string& parameter, const std::string& source) {
  const Tensor flat = values.flatten();
  for (int64_t begin = 0; begin < flat.numel(); begin += looked_at_once) {
    const int64_t end = std::min(flat.numel(), begin + looked_at_once);
    const std::vector<float> elements = flat.slice(0, begin, end).to_vector<float>();
    const auto bad =
        std::find_if(elements.begin(), elements.end(), [](float x) { return !std::isfinite(x); });
    check(ErrorKind::numeric,
          bad == elements.end(),
          "{}: parameter {} isn't finite: element {} of {} is {}",
          source,
          parameter,
          begin + (bad - elements.begin()),
          values.shape(),
          bad == elements.end() ? 0 : *bad);
  }
}

std::unique_ptr<LanguageModel> build_on_meta(const Family& family,
                                             const SizeOptions& size,
                                             uint64_t seed) {
  const DeviceGuard guard(unplaced);
  return family.build(size, seed);
}

}  // namespace sg::models

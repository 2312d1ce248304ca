// `export`: the parameters of a run's newest checkpoint as one safetensors file, streamed from its
// shards.
#include <algorithm>
#include <cstdio>

#include "core/io/output_file.h"
#include "core/io/safetensors.h"
#include "core/ops.h"
#include "dist/checkpoint/checkpoint.h"
#include "models/run/commands.h"
#include "models/run/load.h"
#include "models/run/run_folder.h"
#include "models/run/saved_run.h"

namespace sg::models {
namespace {

// Names, in registration order, and shapes; built without memory.
std::vector<TensorInfo> tensors_of(const Family& family, const SavedRun& saved, DType dtype) {
  const DeviceGuard guard(meta());
  std::vector<TensorInfo> tensors;
  const auto model = family.build(saved.size, saved.seed);
  for (const Variable& p : model->parameters())
    tensors.push_back({p.name(), dtype, p.shape()});
  return tensors;
}

}  // namespace

void export_model(const Family& family, const ExportOptions& options) {
  check_output_option("--to", options.to, followed(options.from), true);
  const dist::CheckpointReader checkpoint(followed(options.from));
  const SavedRun saved = SavedRun::parse(checkpoint.state(), checkpoint.path());
  check(ErrorKind::bad_input,
        saved.family == family.name,
        "{}: {} holds a model of family {}",
        family.name,
        checkpoint.path(),
        saved.family);
  check_sizes(family, saved, checkpoint);
  const std::vector<TensorInfo> tensors = tensors_of(family, saved, options.dtype);
  int64_t largest = 0;
  for (const TensorInfo& t : tensors)
    largest = std::max(largest, numel(t.shape));

  const CategoryScope scope(Category::data);
  const Tensor values = empty({largest});  // one tensor's, and what becomes of it
  const Tensor converted = options.dtype == DType::f32 ? values : empty({largest}, options.dtype);
  OutputFile file(options.to);
  SafetensorsWriter writer(
      file, tensors, {{"format", "pt"}, {"step", std::to_string(checkpoint.step())}});
  for (const TensorInfo& t : tensors) {
    const int64_t n = numel(t.shape);
    checkpoint.read_value(t.name, values.slice(0, 0, n));
    if (!options.allow_nonfinite)
      check_finite(values.slice(0, 0, n).reshape(t.shape), t.name, checkpoint.path());
    if (options.dtype != DType::f32)
      copy_(converted.slice(0, 0, n), values.slice(0, 0, n));
    writer.write(converted.slice(0, 0, n).reshape(t.shape));
  }
  writer.check_complete();
  file.commit();
  std::printf("%s: %zu tensors of step %llu as %s\n",
              options.to.c_str(),
              tensors.size(),
              static_cast<unsigned long long>(checkpoint.step()),
              name_of(options.dtype));
}

}  // namespace sg::models

// `export`: the parameters of a run's newest checkpoint, streamed from its shards, as one
// safetensors file under our names or as a Hugging Face folder.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <set>

#include "core/device.h"
#include "core/io/output_file.h"
#include "core/io/safetensors.h"
#include "core/ops.h"
#include "dist/checkpoint/checkpoint.h"
#include "models/run/commands.h"
#include "models/run/load.h"
#include "models/run/run_folder.h"
#include "models/run/saved_run.h"
#include "models/weights/files.h"

namespace sg::models {
namespace {

// Names, in registration order, and shapes; built without memory.
std::vector<TensorInfo> tensors_of(const Family& family, const SavedRun& saved, DType dtype) {
  const auto model = build_on_meta(family, saved.size, saved.seed);
  std::vector<TensorInfo> tensors;
  for (const Variable& p : model->parameters())
    tensors.push_back({p.name(), dtype, p.shape()});
  return tensors;
}

// One parameter's values at a time.
class Values {
 public:
  Values(const dist::CheckpointReader& checkpoint,
         const std::vector<TensorInfo>& tensors,
         bool allow_nonfinite)
      : checkpoint_(checkpoint), allow_nonfinite_(allow_nonfinite) {
    int64_t largest = 0;
    for (const TensorInfo& t : tensors)
      largest = std::max(largest, numel(t.shape));
    const CategoryScope scope(Category::data);
    values_ = empty({largest});
  }

  Tensor of(const TensorInfo& parameter) const {
    const Tensor value = values_.slice(0, 0, numel(parameter.shape)).reshape(parameter.shape);
    checkpoint_.read_value(parameter.name, value.flatten());
    if (!allow_nonfinite_)
      check_finite(value, parameter.name, checkpoint_.path());
    return value;
  }

 private:
  const dist::CheckpointReader& checkpoint_;
  const bool allow_nonfinite_;
  Tensor values_;
};

void write_file(const ExportOptions& options,
                const dist::CheckpointReader& checkpoint,
                const std::vector<TensorInfo>& tensors) {
  const Values values(checkpoint, tensors, options.allow_nonfinite);
  OutputFile file(options.to);
  SafetensorsWriter writer(
      file, tensors, {{"format", "pt"}, {"step", std::to_string(checkpoint.step())}});
  for (const TensorInfo& t : tensors)
    writer.write_cast(values.of(t));
  writer.check_complete();
  file.commit();
}

// A tensor of theirs that is written: a part of a parameter's value, or zeros.
struct Written {
  WeightPart part;
  bool zeros = false;
};

// By parameter, in the order of writing.
std::vector<std::vector<Written>> plan_of(const std::vector<TensorInfo>& tensors,
                                          const WeightFormat& format) {
  std::vector<std::vector<Written>> plan;
  std::set<std::string> names;
  for (const TensorInfo& t : tensors) {
    plan.emplace_back();
    for (const WeightPart& part : format.parts(t.name, t.shape)) {
      plan.back().push_back({part});
      names.insert(part.name);
    }
  }
  for (size_t i = 0; format.zeros && i < tensors.size(); ++i)
    for (const WeightPart& part : format.zeros(tensors[i].name, tensors[i].shape))
      if (names.insert(part.name).second)
        plan[i].push_back({part, true});
  return plan;
}

void write_parts(const Tensor& value,
                 const std::vector<Written>& parts,
                 WeightFilesWriter& writer) {
  int64_t begin = 0;  // of value's rows
  for (const Written& written : parts) {
    const WeightPart& part = written.part;
    if (written.zeros) {
      const CategoryScope scope(Category::workspace);
      writer.write(zeros(part.shape));
      continue;
    }
    const int64_t rows = numel(part.shape) * value.size(0) / value.numel();
    const Tensor ours = value.slice(0, begin, begin + rows);
    writer.write(part.transposed ? ours.transposed() : ours.reshape(part.shape));
    begin += rows;
  }
}

const char* dtype_in_config(DType dtype) {
  if (dtype == DType::f32)
    return "float32";
  return dtype == DType::bf16 ? "bfloat16" : "float16";
}

void write_folder(const Family& family,
                  const ExportOptions& options,
                  const dist::CheckpointReader& checkpoint,
                  const SavedRun& saved,
                  const std::vector<TensorInfo>& tensors) {
  const HuggingFaceForm& form = family.hugging_face;
  const auto plan = plan_of(tensors, form.weights(saved.size));
  std::vector<TensorInfo> theirs;
  for (const auto& parts : plan)
    for (const Written& written : parts)
      theirs.push_back({written.part.name, options.dtype, written.part.shape});
  const Values values(checkpoint, tensors, options.allow_nonfinite);
  const auto most = static_cast<uint64_t>(options.shard_bytes);
  WeightFilesWriter writer(options.to, theirs, most);
  for (size_t i = 0; i < tensors.size(); ++i)
    write_parts(values.of(tensors[i]), plan[i], writer);
  writer.add_file("config.json", form.write_config(saved.size, dtype_in_config(options.dtype)));
  writer.finish();
}

// A name that ends so, and what is there and no folder (a device, say), is a file; all else is a
// folder.
bool is_file(const std::string& path) {
  return path.ends_with(".safetensors") ||
         (std::filesystem::exists(path) && !std::filesystem::is_directory(path));
}

}  // namespace

void export_model(const Family& family, const ExportOptions& given) {
  ExportOptions options = given;
  configure(current_device(), options.group.device);
  const bool file = is_file(options.to);
  while (!file && options.to.size() > 1 && options.to.ends_with('/'))
    options.to.pop_back();
  if (file) {
    check_output_option("--to", options.to, followed(options.from), true);
  } else {
    check_outside_runs("--to", options.to, followed(options.from));
    check(family.hugging_face.weights != nullptr,
          "{}: this family has no Hugging Face form; --to NAME.safetensors writes one file",
          family.name);
  }
  const dist::CheckpointReader checkpoint(followed(options.from));
  const SavedRun saved = saved_run_of(family, checkpoint);
  const std::vector<TensorInfo> tensors = tensors_of(family, saved, options.dtype);
  if (file)
    write_file(options, checkpoint, tensors);
  else
    write_folder(family, options, checkpoint, saved, tensors);
  std::printf("%s: %zu parameters of step %llu as %s%s\n",
              options.to.c_str(),
              tensors.size(),
              static_cast<unsigned long long>(checkpoint.step()),
              name_of(options.dtype),
              file ? "" : ", in Hugging Face's form");
}

}  // namespace sg::models

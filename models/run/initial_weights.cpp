#include "models/run/initial_weights.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "core/io/hash.h"
#include "core/io/input_file.h"
#include "core/ops.h"
#include "dist/checkpoint/checkpoint.h"
#include "models/data/tokenizer.h"
#include "models/run/load.h"
#include "models/run/run_folder.h"
#include "models/run/saved_run.h"
#include "models/weights/files.h"

namespace sg::models {
namespace {

constexpr uint64_t longest_config = 10'000'000;

std::string config_path(const std::string& folder) {
  return folder + "/config.json";
}

SizeOptions read_config(const Family& family, const std::string& folder) {
  check(family.hugging_face.read_config != nullptr,
        "{}: this family doesn't read Hugging Face's folders",
        family.name);
  const std::string path = config_path(folder);
  return family.hugging_face.read_config(read_file(path, longest_config), path);
}

class HuggingFaceWeights final : public InitialWeights {
 public:
  HuggingFaceWeights(const Family& family, const std::string& folder)
      : HuggingFaceWeights(family, read_config(family, folder), folder, WeightFiles(folder)) {}

  void read(const std::string& parameter, const Tensor& out) const override {
    files_.read(parameter, format_, out);
  }
  std::string tokenizer() const override { return IdTokenizer(*size().vocab).to_json(); }

 private:
  HuggingFaceWeights(const Family& family,
                     const SizeOptions& size,
                     const std::string& folder,
                     WeightFiles files)
      : InitialWeights(family, checked(size, files), folder),
        files_(std::move(files)),
        format_(family.hugging_face.weights(size)) {
    files_.check_fits(parameters(), format_);
  }

  static const SizeOptions& checked(const SizeOptions& size, const WeightFiles& files) {
    files.check_layers(*size.layers);
    return size;
  }

  const WeightFiles files_;
  const WeightFormat format_;
};

class RunWeights final : public InitialWeights {
 public:
  RunWeights(const Family& family,
             const SavedRun& saved,
             std::unique_ptr<const dist::CheckpointReader> checkpoint)
      : InitialWeights(family, saved.size, checkpoint->path()),
        tokenizer_(saved.tokenizer),
        checkpoint_(std::move(checkpoint)) {}

  void read(const std::string& parameter, const Tensor& out) const override {
    checkpoint_->read_value(parameter, out.flatten());
  }
  std::string tokenizer() const override { return tokenizer_; }

 private:
  const std::string tokenizer_;
  const std::unique_ptr<const dist::CheckpointReader> checkpoint_;
};

}  // namespace

bool is_hugging_face(const std::string& folder) {
  return std::filesystem::exists(config_path(folder));
}

InitialWeights::InitialWeights(const Family& family, SizeOptions size, std::string source)
    : size_(std::move(size)), source_(std::move(source)) {
  try {
    const auto model = build_on_meta(family, size_, 1);
    for (const Variable& p : model->parameters())
      parameters_.push_back({p.name(), DType::f32, p.shape()});
  } catch (const Error& e) {
    fail(ErrorKind::bad_input, "{}: {}", source_, e.what());
  }
}

std::unique_ptr<InitialWeights> InitialWeights::open(const Family& family,
                                                     const std::string& folder) {
  if (is_hugging_face(folder))
    return std::make_unique<HuggingFaceWeights>(family, folder);
  auto checkpoint = std::make_unique<const dist::CheckpointReader>(followed(folder));
  const SavedRun saved = saved_run_of(family, *checkpoint);
  return std::make_unique<RunWeights>(family, saved, std::move(checkpoint));
}

int64_t InitialWeights::elements() const {
  int64_t elements = 0;
  for (const TensorInfo& p : parameters_)
    elements += numel(p.shape);
  return elements;
}

std::string InitialWeights::hash() const {
  const CategoryScope scope(Category::data);
  Sha256 hash;
  for (const TensorInfo& p : parameters_) {
    const Tensor value = empty(p.shape);
    read(p.name, value);
    check_finite(value, p.name, source_);
    hash.update(value.view().data, value.bytes());
  }
  return hash.hex();
}

SizeOptions size_in(const Family& family, const std::string& folder) {
  if (is_hugging_face(folder))
    return read_config(family, folder);
  const dist::CheckpointReader checkpoint(followed(folder));
  return saved_run_of(family, checkpoint).size;
}

std::vector<Unit> begin_with(const InitialWeights& weights, std::vector<Unit> units) {
  for (Unit& unit : units)
    unit.initial = [&weights](const Variable& p, const Tensor& out) {
      weights.read(p.name(), out);
    };
  return units;
}

}  // namespace sg::models

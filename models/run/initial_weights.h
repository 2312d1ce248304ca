// Values that a model begins with instead of random ones: a Hugging Face folder's, or those of
// another run's newest checkpoint.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "autograd/hooks.h"
#include "core/io/safetensors.h"
#include "models/family.h"

namespace sg::models {

class InitialWeights {
 public:
  virtual ~InitialWeights() = default;
  InitialWeights(const InitialWeights&) = delete;
  InitialWeights& operator=(const InitialWeights&) = delete;

  // `folder` holds a config.json, or else it is a run's. Errors: bad_input, naming the file: it
  // isn't of this family, it is damaged, or its tensors don't make this model (which lists both
  // sides); usage where the family has no Hugging Face form.
  static std::unique_ptr<InitialWeights> open(const Family& family, const std::string& folder);

  const SizeOptions& size() const { return size_; }  // every number given
  // A parameter's value into `out`, dense f32 of its shape. Takes no memory but out's.
  virtual void read(const std::string& parameter, const Tensor& out) const = 0;
  virtual std::string tokenizer() const = 0;  // as checkpoints keep it

  // SHA-256 of all values as f32, little-endian, in registration order: params_sha256 before the
  // first step. Reads them one by one. Error numeric for one that isn't finite, by name.
  std::string hash() const;
  const std::vector<TensorInfo>& parameters() const { return parameters_; }  // registration order
  int64_t elements() const;
  const std::string& source() const { return source_; }

 protected:
  InitialWeights(const Family& family, SizeOptions size, std::string source);

 private:
  const SizeOptions size_;
  const std::string source_;
  std::vector<TensorInfo> parameters_;  // f32
};

bool is_hugging_face(const std::string& folder);  // it has a config.json
// Sizes that such a folder decides, without a look at its tensors.
SizeOptions size_in(const Family& family, const std::string& folder);

// Units whose parameters on meta begin with these values, which outlive the engine's start.
std::vector<Unit> begin_with(const InitialWeights& weights, std::vector<Unit> units);

}  // namespace sg::models

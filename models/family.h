// A family of models as the shared driver sees it; a program is a family and run().
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "models/language_model.h"
#include "models/size_options.h"
#include "models/weights/format.h"

namespace sg::models {

// A family's folders in Hugging Face's form: config.json and safetensors.
struct HuggingFaceForm {
  // Every size that config.json decides. Error bad_input, naming `source` and the field, for one
  // that can't be honoured.
  std::function<SizeOptions(const std::string& text, const std::string& source)> read_config;
  // The reverse, for a file whose weights are of that dtype ("float32", "bfloat16", "float16").
  std::function<std::string(const SizeOptions& options, const std::string& dtype)> write_config;
  std::function<WeightFormat(const SizeOptions& options)> weights;
};

struct Family {
  std::string name;   // of the program too: "gpt2"
  std::string sizes;  // help of --size
  // Fills in what the named size says wherever nothing was given; `tokenizer_vocab` where the size
  // leaves the vocabulary to the data. Usage error for an unknown size.
  std::function<void(SizeOptions& options, int64_t tokenizer_vocab)> resolve;
  // The sizes of the model nearest to so many parameters.
  std::function<SizeOptions(double parameters)> nearest;
  // On the current device, initialized from the seed; `options` as resolve left them.
  std::function<std::unique_ptr<LanguageModel>(const SizeOptions& options, uint64_t seed)> build;
  HuggingFaceForm hugging_face = {};
};

// The program: reads the command line, starts the ranks, runs the subcommand. Returns the exit code
// (core/error.h).
int run(int argc, char** argv, const Family& family);

}  // namespace sg::models

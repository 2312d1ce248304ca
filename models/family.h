// A family of models as the shared driver sees it; a program is a family and run().
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "models/language_model.h"
#include "models/size_options.h"

namespace sg::models {

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
};

// The program: reads the command line, starts the ranks, runs the subcommand. Returns the exit code
// (core/error.h).
int run(int argc, char** argv, const Family& family);

}  // namespace sg::models

// llama: trains, validates, generates with and measures Llama (models/llama/llama.h).
#include <fmt/ranges.h>

#include <cmath>

#include "models/family.h"
#include "models/llama/llama.h"

namespace sg::models {
namespace {

void resolve(SizeOptions& o, int64_t tokenizer_vocab) {
  const LlamaOptions preset = llama_preset(o.size);
  o.layers = o.layers.value_or(preset.layers);
  o.heads = o.heads.value_or(preset.heads);
  o.width = o.width.value_or(preset.width);
  o.context = o.context.value_or(preset.context);
  o.vocab = o.vocab.value_or(preset.vocab > 0 ? preset.vocab : tokenizer_vocab);
}

// What the command line has no option for is the preset's.
std::unique_ptr<LanguageModel> build(const SizeOptions& o, uint64_t seed) {
  check(o.dropout == 0, "llama: has no dropout, {} was asked for; leave --dropout out", o.dropout);
  LlamaOptions options = llama_preset(o.size);
  options.layers = o.layers.value();
  options.heads = o.heads.value();
  options.width = o.width.value();
  options.context = o.context.value();
  options.vocab = o.vocab.value();
  options.tied = options.tied && o.tied;
  options.seed = seed;
  return std::make_unique<Llama>(options);
}

// Of the published sizes.
SizeOptions nearest(double parameters) {
  SizeOptions best;
  double least = INFINITY;
  for (const std::string& size : llama_sizes()) {
    const LlamaOptions preset = llama_preset(size);
    const double off = std::abs(static_cast<double>(llama_parameters(preset)) - parameters);
    if (preset.vocab == 0 || off >= least)
      continue;
    least = off;
    best.size = size;
    best.layers = preset.layers, best.heads = preset.heads, best.width = preset.width;
    best.context = preset.context, best.vocab = preset.vocab;
  }
  return best;
}

}  // namespace
}  // namespace sg::models

int main(int argc, char** argv) {
  return sg::models::run(argc,
                         argv,
                         {"llama",
                          fmt::format("{}", fmt::join(sg::models::llama_sizes(), ", ")),
                          sg::models::resolve,
                          sg::models::nearest,
                          sg::models::build});
}

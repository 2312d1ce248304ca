// gpt2: trains, validates, generates with and measures GPT-2 (models/gpt2.h).
#include "models/family.h"
#include "models/gpt2.h"

namespace sg::models {
namespace {

void resolve(SizeOptions& o, int64_t tokenizer_vocab) {
  const Gpt2Options preset = gpt2_preset(o.size);
  o.layers = o.layers.value_or(preset.layers);
  o.heads = o.heads.value_or(preset.heads);
  o.width = o.width.value_or(preset.width);
  o.context = o.context.value_or(preset.context);
  o.vocab = o.vocab.value_or(preset.vocab > 0 ? preset.vocab : tokenizer_vocab);
}

std::unique_ptr<LanguageModel> build(const SizeOptions& o, uint64_t seed) {
  return std::make_unique<Gpt2>(Gpt2Options{.layers = o.layers.value(),
                                            .heads = o.heads.value(),
                                            .width = o.width.value(),
                                            .context = o.context.value(),
                                            .vocab = o.vocab.value(),
                                            .bias = gpt2_preset(o.size).bias,
                                            .dropout = o.dropout,
                                            .tied = o.tied,
                                            .seed = seed});
}

}  // namespace
}  // namespace sg::models

int main(int argc, char** argv) {
  return sg::models::run(argc, argv,
                         {"gpt2", "nano, 124m, 350m, 774m or 1558m", sg::models::resolve, sg::models::build});
}

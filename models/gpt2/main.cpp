// gpt2: trains, validates, generates with and measures GPT-2 (models/gpt2/gpt2.h).
#include <algorithm>
#include <cmath>

#include "models/family.h"
#include "models/gpt2/gpt2.h"
#include "models/gpt2/weights.h"

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

// 7.5 billion is the model of the ZeRO paper's memory table. Otherwise the nearest of all shapes on
// a 64-wide grid with heads of 64 and a width of 96 to 160 times the depth.
SizeOptions nearest(double parameters) {
  SizeOptions best;
  best.size = "124m";
  best.vocab = 50257, best.context = 1024;
  const auto take = [&](int64_t layers, int64_t width) {
    best.layers = layers, best.width = width, best.heads = width / 64;
  };
  if (parameters == 7.5e9) {
    take(33, 4288);
    return best;
  }
  double least = INFINITY;
  for (int64_t width = 64; width <= 1 << 16; width += 64) {
    for (int64_t layers = std::max<int64_t>(1, width / 160); layers <= width / 96 + 1; ++layers) {
      const auto w = static_cast<double>(width), l = static_cast<double>(layers);
      const double count = l * (12 * w * w + 13 * w) + (50257 + 1024 + 2) * w;
      if (std::abs(count - parameters) < least)
        least = std::abs(count - parameters), take(layers, width);
    }
  }
  return best;
}

}  // namespace
}  // namespace sg::models

int main(int argc, char** argv) {
  return sg::models::run(argc,
                         argv,
                         {"gpt2",
                          "nano, 124m, 350m, 774m or 1558m",
                          sg::models::resolve,
                          sg::models::nearest,
                          sg::models::build,
                          sg::models::gpt2_hugging_face()});
}

// The families whose weights are held against Hugging Face's, as their programs have them.
#pragma once
#include "models/family.h"
#include "models/gpt2/gpt2.h"
#include "models/gpt2/weights.h"

namespace sg::test {

inline models::Family gpt2_family() {
  models::Family family;
  family.name = "gpt2";
  family.resolve = [](models::SizeOptions& o, int64_t) {
    check(o.layers && o.heads && o.width && o.context && o.vocab, "test: sizes are missing");
  };
  family.build = [](const models::SizeOptions& o, uint64_t seed) {
    return std::make_unique<models::Gpt2>(models::Gpt2Options{.layers = *o.layers,
                                                              .heads = *o.heads,
                                                              .width = *o.width,
                                                              .context = *o.context,
                                                              .vocab = *o.vocab,
                                                              .dropout = o.dropout,
                                                              .tied = o.tied,
                                                              .seed = seed});
  };
  family.hugging_face = models::gpt2_hugging_face();
  return family;
}

}  // namespace sg::test

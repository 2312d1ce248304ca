// GPT-2's weights and sizes as Hugging Face's GPT2LMHeadModel has them.
#pragma once
#include <memory>
#include <string>

#include "models/family.h"
#include "models/gpt2/gpt2.h"

namespace sg::models {

// "block0.attention.qkv.weight" of width 768 is "transformer.h.0.attn.c_attn.weight", (768, 2304),
// transposed: linear layers are Conv1D there. Biases that ours has none of are zeros.
WeightFormat gpt2_weights(const SizeOptions& options);

// config.json, both ways.
SizeOptions read_gpt2_config(const std::string& text, const std::string& source);
std::string write_gpt2_config(const SizeOptions& options, const std::string& dtype);

// A model of such a folder's sizes and values, on the current device, in training mode without
// dropout. Errors: bad_input as models/weights/files.h and read_gpt2_config have it; usage on meta,
// which keeps no values.
std::unique_ptr<Gpt2> load_gpt2(const std::string& folder);

inline HuggingFaceForm gpt2_hugging_face() {
  return {read_gpt2_config, write_gpt2_config, gpt2_weights};
}

}  // namespace sg::models

// GPT-2's weights and sizes as Hugging Face's GPT2LMHeadModel has them.
#pragma once
#include <string>

#include "models/family.h"
#include "nn/module.h"

namespace sg::models {

// "block0.attention.qkv.weight" of width 768 is "transformer.h.0.attn.c_attn.weight", (768, 2304),
// transposed: linear layers are Conv1D there. Biases that ours has none of are zeros.
WeightFormat gpt2_weights(const SizeOptions& options);

// config.json, both ways.
SizeOptions read_gpt2_config(const std::string& text, const std::string& source);
std::string write_gpt2_config(const SizeOptions& options, const std::string& dtype);

inline HuggingFaceForm gpt2_hugging_face() {
  return {read_gpt2_config, write_gpt2_config, gpt2_weights};
}

}  // namespace sg::models

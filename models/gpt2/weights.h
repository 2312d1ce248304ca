// GPT-2's weights under the names that Hugging Face's files give them.
#pragma once
#include <string>

#include "models/gpt2/gpt2.h"

namespace sg::models {

// The name that Hugging Face's GPT2LMHeadModel has for a parameter of ours:
// "block0.attention.qkv.weight" → "transformer.h.0.attn.c_attn.weight". Usage error for a name that
// GPT-2 doesn't have.
std::string hugging_face_name(const std::string& name);

// True where the file holds (in, out) and we (out, in): the weights of all linear layers, which are
// Conv1D there.
bool hugging_face_transposes(const std::string& name);

// Our state out of theirs; names with or without the prefix "transformer.". Masks and a tied
// lm_head are passed over. Error bad_input names what is missing or of another shape.
nn::StateDict from_hugging_face(const nn::StateDict& theirs, const Gpt2& model);

}  // namespace sg::models

#include "models/gpt2/weights.h"

#include <utility>

#include "core/ops.h"

namespace sg::models {
namespace {

constexpr std::pair<const char*, const char*> parts[] = {
    {"embeddings.tokens.", "transformer.wte."},
    {"embeddings.positions.", "transformer.wpe."},
    {"head.norm.", "transformer.ln_f."},
    {"norm1.", "ln_1."},
    {"attention.qkv.", "attn.c_attn."},
    {"attention.out.", "attn.c_proj."},
    {"norm2.", "ln_2."},
    {"mlp.in.", "mlp.c_fc."},
    {"mlp.out.", "mlp.c_proj."}};

std::string renamed(const std::string& name) {
  for (const auto& [ours, theirs] : parts)
    if (name.rfind(ours, 0) == 0)
      return theirs + name.substr(std::string(ours).size());
  fail(ErrorKind::usage, "gpt2: {} is no parameter of this family", name);
}

}  // namespace

std::string hugging_face_name(const std::string& name) {
  if (name == "head.weight")
    return "lm_head.weight";
  if (name.rfind("block", 0) != 0)
    return renamed(name);
  const size_t dot = name.find('.');
  return "transformer.h." + name.substr(5, dot - 5) + "." + renamed(name.substr(dot + 1));
}

bool hugging_face_transposes(const std::string& name) {
  const bool linear =
      name.find(".attention.") != std::string::npos || name.find(".mlp.") != std::string::npos;
  return linear && name.ends_with(".weight");
}

nn::StateDict from_hugging_face(const nn::StateDict& theirs, const Gpt2& model) {
  nn::StateDict ours;
  for (const auto& [name, tensor] : model.state()) {
    const std::string full = hugging_face_name(name);
    auto found = theirs.find(full);
    if (found == theirs.end())
      found = theirs.find(full.substr(full.find('.') + 1));
    check(ErrorKind::bad_input,
          found != theirs.end(),
          "gpt2: the file lacks {} (for {} {})",
          full,
          name,
          tensor.shape());
    const Tensor& given = found->second;
    const Tensor turned =
        hugging_face_transposes(name) && given.rank() == 2 ? given.transposed() : given;
    check(ErrorKind::bad_input,
          turned.shape() == tensor.shape(),
          "gpt2: {} is {} in the file, {} {} is needed",
          full,
          given.shape(),
          name,
          tensor.shape());
    ours.emplace(name, turned);
  }
  return ours;
}

}  // namespace sg::models

#include "models/gpt2/weights.h"

#include <array>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "core/device.h"
#include "core/error.h"
#include "core/io/input_file.h"
#include "models/weights/config_file.h"
#include "models/weights/files.h"

namespace sg::models {
namespace {

using nlohmann::ordered_json;

constexpr const char* prefix = "transformer.";

constexpr std::pair<const char*, const char*> parts[] = {{"embeddings.tokens.", "wte."},
                                                         {"embeddings.positions.", "wpe."},
                                                         {"head.norm.", "ln_f."},
                                                         {"norm1.", "ln_1."},
                                                         {"attention.qkv.", "attn.c_attn."},
                                                         {"attention.out.", "attn.c_proj."},
                                                         {"norm2.", "ln_2."},
                                                         {"mlp.in.", "mlp.c_fc."},
                                                         {"mlp.out.", "mlp.c_proj."}};

std::string renamed(const std::string& name) {
  for (const auto& [ours, theirs] : parts)
    if (name.starts_with(ours))
      return theirs + name.substr(std::string_view(ours).size());
  fail(ErrorKind::usage, "gpt2: {} is no parameter of this family", name);
}

std::string name_in_file(const std::string& name) {
  if (name == "head.weight")
    return "lm_head.weight";
  if (!name.starts_with("block"))
    return prefix + renamed(name);
  const size_t dot = name.find('.');
  return prefix + ("h." + name.substr(5, dot - 5) + "." + renamed(name.substr(dot + 1)));
}

bool is_linear(const std::string& name) {
  const bool inside =
      name.find(".attention.") != std::string::npos || name.find(".mlp.") != std::string::npos;
  return inside && name.ends_with(".weight");
}

std::vector<WeightPart> parts_of(const std::string& name, const Shape& shape) {
  if (!is_linear(name))
    return {{name_in_file(name), shape, false}};
  return {{name_in_file(name), {shape[1], shape[0]}, true}};
}

// A bias for every norm and linear layer.
std::vector<WeightPart> zeros_of(const std::string& name, const Shape& shape) {
  const bool norm = name.find("norm") != std::string::npos;
  if (!name.ends_with(".weight") || (!norm && !is_linear(name)))
    return {};
  const std::string layer = name.substr(0, name.size() - std::string_view("weight").size());
  return {{name_in_file(layer + "bias"), {shape[0]}, false}};
}

// Causal masks, which old files keep beside each block's weights.
bool is_mask(const std::string& name) {
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias");
}

// The rate of all three places; ours has one.
float dropout_of(ConfigFile& config) {
  const double rate = config.number("resid_pdrop", 0.1);
  for (const char* other : {"embd_pdrop", "attn_pdrop"})
    check(ErrorKind::bad_input,
          config.number(other, 0.1) == rate,
          "{}: {} {} can't be honoured beside resid_pdrop {}: this family has one rate",
          config.source(),
          other,
          config.number(other, 0.1),
          rate);
  check(ErrorKind::bad_input,
        0 <= rate && rate < 1,
        "{}: resid_pdrop must lie in [0, 1), not {}",
        config.source(),
        rate);
  return static_cast<float>(rate);
}

// As short as the float itself is written.
double written(float rate) {
  return std::stod(fmt::format("{}", rate));
}

}  // namespace

WeightFormat gpt2_weights(const SizeOptions& options) {
  const bool tied = options.tied;
  return {.parts = parts_of,
          .zeros = zeros_of,
          .passes_over =
              [tied](const std::string& name) {
                return is_mask(name) || (tied && name == "lm_head.weight");
              },
          .prefix = prefix};
}

SizeOptions read_gpt2_config(const std::string& text, const std::string& source) {
  ConfigFile config(text, source);
  config.expect("model_type", {"gpt2"});
  check(ErrorKind::bad_input, config.has("model_type"), "{}: model_type is missing", source);
  SizeOptions size;
  size.size = "124m";  // whose layers have biases
  size.layers = config.whole("n_layer");
  size.heads = config.whole("n_head");
  size.width = config.whole("n_embd");
  size.context = config.whole("n_positions");
  size.vocab = config.whole("vocab_size");
  size.tied = config.flag("tie_word_embeddings", true);
  size.dropout = dropout_of(config);
  config.expect("n_ctx", {*size.context});
  config.expect("n_inner", {4 * *size.width});
  config.expect("activation_function", {"gelu_new", "gelu_pytorch_tanh"});
  config.expect("layer_norm_epsilon", {1e-5});
  config.expect("scale_attn_weights", {true});
  for (const char* other : {"scale_attn_by_inverse_layer_idx",
                            "reorder_and_upcast_attn",
                            "add_cross_attention",
                            "is_encoder_decoder"})
    config.expect(other, {false});
  config.ignore({"summary_activation",
                 "summary_first_dropout",
                 "summary_proj_to_labels",
                 "summary_type",
                 "summary_use_proj"});
  config.finish();
  return size;
}

std::string write_gpt2_config(const SizeOptions& options, const std::string& dtype) {
  const ordered_json config = {{"architectures", {"GPT2LMHeadModel"}},
                               {"model_type", "gpt2"},
                               {"n_layer", *options.layers},
                               {"n_head", *options.heads},
                               {"n_embd", *options.width},
                               {"n_positions", *options.context},
                               {"vocab_size", *options.vocab},
                               {"activation_function", "gelu_new"},
                               {"layer_norm_epsilon", 1e-5},
                               {"resid_pdrop", written(options.dropout)},
                               {"embd_pdrop", written(options.dropout)},
                               {"attn_pdrop", written(options.dropout)},
                               {"tie_word_embeddings", options.tied},
                               {"bos_token_id", nullptr},
                               {"eos_token_id", nullptr},
                               {"dtype", dtype}};
  return config.dump(2) + "\n";
}

namespace {

constexpr uint64_t longest_config = 10'000'000;

std::unique_ptr<Gpt2> of_sizes(const SizeOptions& o) {
  return std::make_unique<Gpt2>(Gpt2Options{.layers = *o.layers,
                                            .heads = *o.heads,
                                            .width = *o.width,
                                            .context = *o.context,
                                            .vocab = *o.vocab,
                                            .tied = o.tied});
}

// Before a model of these sizes takes memory.
void check_sizes(const SizeOptions& size, const WeightFiles& files, const WeightFormat& format) {
  files.check_layers(*size.layers);
  const DeviceGuard guard(unplaced);
  std::vector<TensorInfo> parameters;
  for (const Variable& p : of_sizes(size)->parameters())
    parameters.push_back({p.name(), DType::f32, p.shape()});
  files.check_fits(parameters, format);
}

}  // namespace

std::unique_ptr<Gpt2> load_gpt2(const std::string& folder) {
  check(current_device().type != DeviceType::meta,
        "load_gpt2: {} keeps no values; load on a device with memory",
        current_device());
  const std::string path = folder + "/config.json";
  const SizeOptions size = read_gpt2_config(read_file(path, longest_config), path);
  const WeightFormat format = gpt2_weights(size);
  const WeightFiles files(folder);
  check_sizes(size, files, format);
  auto model = of_sizes(size);
  for (const Variable& p : model->parameters())
    files.read(p.name(), format, p.tensor());
  return model;
}

}  // namespace sg::models

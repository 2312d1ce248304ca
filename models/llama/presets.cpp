// Llama's published sizes, from the config.json of each.
#include <fmt/ranges.h>

#include <utility>

#include "models/llama/llama.h"

namespace sg::models {
namespace {

using Preset = std::pair<std::string, LlamaOptions>;

LlamaOptions sizes(int64_t layers, int64_t heads, int64_t kv_heads, int64_t width, int64_t hidden) {
  return {.layers = layers, .heads = heads, .width = width, .hidden = hidden, .kv_heads = kv_heads};
}

LlamaOptions llama3_1(LlamaOptions o, float factor, bool tied) {
  o.context = 131072, o.vocab = 128256, o.tied = tied;
  o.rope = {.theta = 500000,
            .scaling = RopeScaling::llama3,
            .factor = factor,
            .original_context = 8192,
            .slow = 1,
            .fast = 4};
  return o;
}

LlamaOptions base(LlamaOptions o, int64_t context, int64_t vocab, float theta) {
  o.context = context, o.vocab = vocab, o.rope.theta = theta;
  return o;
}

LlamaOptions qwen2_5(LlamaOptions o, int64_t vocab, bool tied) {
  o = base(o, 32768, vocab, 1e6f);
  o.qkv_bias = true, o.norm_eps = 1e-6f, o.tied = tied;
  return o;
}

LlamaOptions qwen3(LlamaOptions o, bool tied) {
  o = base(o, 40960, 151936, 1e6f);
  o.qk_norm = true, o.norm_eps = 1e-6f, o.head_width = 128, o.tied = tied;
  return o;
}

LlamaOptions smollm2(LlamaOptions o) {
  o = base(o, 8192, 49152, 1e5f);
  o.tied = true;
  return o;
}

LlamaOptions mistral_v0_1() {
  LlamaOptions o = base(sizes(32, 32, 8, 4096, 14336), 32768, 32000, 1e4f);
  o.window = 4096;
  return o;
}

LlamaOptions nano() {
  LlamaOptions o = base(sizes(4, 4, 2, 128, 344), 64, 0, 1e4f);
  o.tied = true;
  return o;
}

const std::vector<Preset>& presets() {
  static const std::vector<Preset> all{
      {"nano", nano()},
      {"llama2-7b", base(sizes(32, 32, 32, 4096, 11008), 4096, 32000, 1e4f)},
      {"llama2-13b", base(sizes(40, 40, 40, 5120, 13824), 4096, 32000, 1e4f)},
      {"llama3-8b", base(sizes(32, 32, 8, 4096, 14336), 8192, 128256, 5e5f)},
      {"llama3.1-8b", llama3_1(sizes(32, 32, 8, 4096, 14336), 8, false)},
      {"llama3.1-70b", llama3_1(sizes(80, 64, 8, 8192, 28672), 8, false)},
      {"llama3.2-1b", llama3_1(sizes(16, 32, 8, 2048, 8192), 32, true)},
      {"llama3.2-3b", llama3_1(sizes(28, 24, 8, 3072, 8192), 32, true)},
      {"mistral-7b-v0.1", mistral_v0_1()},
      {"qwen2.5-0.5b", qwen2_5(sizes(24, 14, 2, 896, 4864), 151936, true)},
      {"qwen2.5-1.5b", qwen2_5(sizes(28, 12, 2, 1536, 8960), 151936, true)},
      {"qwen3-0.6b", qwen3(sizes(28, 16, 8, 1024, 3072), true)},
      {"qwen3-8b", qwen3(sizes(36, 32, 8, 4096, 12288), false)},
      {"smollm2-135m", smollm2(sizes(30, 9, 3, 576, 1536))},
      {"smollm2-360m", smollm2(sizes(32, 15, 5, 960, 2560))},
  };
  return all;
}

}  // namespace

const std::vector<std::string>& llama_sizes() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const auto& [name, options] : presets())
      all.push_back(name);
    return all;
  }();
  return names;
}

LlamaOptions llama_preset(const std::string& size) {
  for (const auto& [name, options] : presets()) {
    if (name == size)
      return options;
  }
  fail(ErrorKind::usage,
       "llama: there is no size \"{}\"; sizes are {}",
       size,
       fmt::join(llama_sizes(), ", "));
}

int64_t llama_parameters(const LlamaOptions& o) {
  const int64_t head = o.head_width > 0 ? o.head_width : o.width / o.heads;
  const int64_t queries = o.heads * head;
  const int64_t keys = (o.kv_heads > 0 ? o.kv_heads : o.heads) * head;
  int64_t block = 2 * o.width + o.width * (2 * queries + 2 * keys) + 3 * o.width * o.hidden;
  block += o.qkv_bias ? queries + 2 * keys : 0;
  block += o.out_bias ? o.width : 0;
  block += o.mlp_bias ? 2 * o.hidden + o.width : 0;
  block += o.qk_norm ? 2 * head : 0;
  return o.layers * block + (o.tied ? 1 : 2) * o.vocab * o.width + o.width;
}

}  // namespace sg::models

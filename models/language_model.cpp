#include "models/language_model.h"

namespace sg::models {

void append_linear(std::vector<Product>& products, const std::string& name, int64_t rows, int64_t in, int64_t out,
                   int64_t count) {
  products.push_back({.name = name, .m = rows, .k = in, .n = out, .transpose_b = true, .count = count});
  products.push_back({.name = name + ".dx", .m = rows, .k = out, .n = in, .count = count});
  products.push_back({.name = name + ".dw", .m = out, .k = rows, .n = in, .transpose_a = true, .count = count});
}

void append_causal_attention(std::vector<Product>& products, int64_t batch_heads, int64_t length, int64_t head_width,
                             int64_t count) {
  const int64_t b = batch_heads, t = length, d = head_width;
  // Forward makes scores and mixes values; backward makes dP like the scores, dQ like the mix, dK and dV turned.
  products.push_back({.name = "attention.scores",
                      .batch = b,
                      .m = t,
                      .k = d,
                      .n = t,
                      .transpose_b = true,
                      .count = 2 * count,
                      .share = 0.5});
  products.push_back({.name = "attention.mix", .batch = b, .m = t, .k = t, .n = d, .count = 2 * count, .share = 0.5});
  products.push_back({.name = "attention.dkv",
                      .batch = b,
                      .m = t,
                      .k = t,
                      .n = d,
                      .transpose_a = true,
                      .count = 2 * count,
                      .share = 0.5});
}

}  // namespace sg::models

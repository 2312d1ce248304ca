// `generate`: text that a trained model writes, token by token.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>

#include "core/ops.h"
#include "models/run/commands.h"
#include "models/run/load.h"

namespace sg::models {
namespace {

// The likeliest token at temperature 0; else one drawn by u in [0, 1) from the top_k likeliest (0:
// all).
int32_t choose(const std::vector<float>& logits, const GenerateOptions& options, double u) {
  for (size_t id = 0; id < logits.size(); ++id)
    check(ErrorKind::numeric,
          std::isfinite(logits[id]),
          "generate: the logit of id {} is {}",
          id,
          logits[id]);
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  // Equal logits in the order of their ids, so that every machine draws alike.
  std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    const float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  });
  if (options.temperature == 0)
    return order.front();
  if (options.top_k > 0)
    order.resize(std::min(order.size(), static_cast<size_t>(options.top_k)));
  std::vector<double> weights;
  for (const int32_t id : order)
    weights.push_back(
        std::exp((logits[static_cast<size_t>(id)] - logits[static_cast<size_t>(order.front())]) /
                 options.temperature));
  double left = u * std::accumulate(weights.begin(), weights.end(), 0.0);
  for (size_t i = 0; i < order.size(); ++i)
    if ((left -= weights[i]) < 0)
      return order[i];
  return order.back();
}

std::vector<int32_t> prompt_ids(const Tokenizer& tokenizer, const std::string& prompt) {
  std::vector<int32_t> ids = tokenizer.encode(prompt, "--prompt");
  if (ids.empty())
    ids.push_back(0);  // the model needs something to go on from
  return ids;
}

// An id as it is written: a model may have more ids than its tokenizer, and those have no text.
std::string text_of(const Tokenizer& tokenizer, int32_t id) {
  return id < tokenizer.size() ? tokenizer.decode({&id, 1}) : fmt::format("<{}>", id);
}

}  // namespace

void generate(const Family& family, const GenerateOptions& options, dist::Comm& comm) {
  check(comm.size() == 1, "generate: one rank writes, not {}", comm.size());
  const Loaded loaded = load_model(family, options.from);
  NoGrad guard;
  const int64_t context = loaded.model->context();
  std::vector<int32_t> ids = prompt_ids(loaded.tokenizer, options.prompt);
  const bool spaced = loaded.tokenizer.kind() == Tokenizer::Kind::ids && !options.prompt.empty();
  std::fprintf(stdout, "%s%s", options.prompt.c_str(), spaced ? " " : "");
  for (int64_t i = 0; i < options.tokens; ++i) {
    const auto length = std::min(context, static_cast<int64_t>(ids.size()));
    const std::vector<int32_t> window(ids.end() - length, ids.end());
    const Tensor logits = loaded.model->last_logits(from_vector(window, {1, length})).tensor();
    const double u = uniform(draw({.seed = options.seed}, static_cast<uint64_t>(i), 0).word[0]);
    ids.push_back(choose(logits.to_vector<float>(), options, u));
    std::fputs(text_of(loaded.tokenizer, ids.back()).c_str(), stdout);
    std::fflush(stdout);
  }
  std::fputs("\n", stdout);
}

}  // namespace sg::models

#include "autograd/recompute_policy.h"

#include <algorithm>
#include <charconv>

#include "autograd/hooks.h"
#include "core/error.h"

namespace sg {
namespace {

constexpr const char* every_prefix = "every:";

// The number behind "every:"; 0 where there is none.
int blocks_of(const std::string& text) {
  const std::string digits = text.substr(std::string(every_prefix).size());
  int blocks = 0;
  const char* const end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, blocks);
  return error == std::errc{} && stop == end ? blocks : 0;
}

}  // namespace

std::string to_string(const RecomputePolicy& policy) {
  switch (policy.kind) {
    case RecomputeKind::every: return every_prefix + std::to_string(policy.every);
    case RecomputeKind::full: return "full";
    case RecomputeKind::selective: return "selective";
    default: return "none";
  }
}

RecomputePolicy parse_recompute(const std::string& text) {
  for (const auto kind : {RecomputeKind::none, RecomputeKind::full, RecomputeKind::selective}) {
    if (text == to_string({kind}))
      return {kind};
  }
  if (text.starts_with(every_prefix)) {
    const int blocks = blocks_of(text);
    if (blocks > 0)
      return {RecomputeKind::every, blocks};
  }
  fail(ErrorKind::usage,
       "recompute: \"{}\" is none of none, every:N with N at least 1, full, selective",
       text);
}

void check_recompute(std::span<const Unit> units, const RecomputePolicy& policy, bool on_host) {
  const bool regions = policy.kind == RecomputeKind::every || policy.kind == RecomputeKind::full;
  check(regions || !on_host,
        "cpu checkpointing moves what recomputed regions keep: it needs recompute full or every:N, "
        "not {}",
        to_string(policy));
  check(policy.every > 0, "recompute: every:{}: N must be at least 1", policy.every);
  const auto is_block = [](const Unit& unit) { return unit.block; };
  check(std::any_of(units.begin(), units.end(), is_block) || policy.kind == RecomputeKind::none,
        "recompute {}: none of the model's {} units is a block that can be computed again: derive "
        "its blocks from nn::Block and register them with add_block",
        to_string(policy),
        units.size());
}

void set_recompute(std::span<const Unit> units,
                   const RecomputePolicy& policy,
                   const std::shared_ptr<HostActivations>& store) {
  int blocks = 0;
  for (const Unit& unit : units) {
    if (unit.block)
      unit.hooks->recompute = {policy.kind, blocks++ / policy.every, store};
  }
}

}  // namespace sg

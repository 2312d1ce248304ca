// Which activations a model's blocks keep for backward, and which are computed again.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace sg {

class HostActivations;  // host_activations.h
struct Unit;            // hooks.h

enum class RecomputeKind : uint8_t {
  none,       // every op keeps what its gradient needs
  every,      // `every` blocks in a row keep the first one's input and are computed again together
  full,       // each block keeps its input alone
  selective,  // results of products are kept, norms and activations run again (RemakeScope)
};

struct RecomputePolicy {
  RecomputeKind kind = RecomputeKind::none;
  int every = 1;
  friend bool operator==(const RecomputePolicy&, const RecomputePolicy&) = default;
};

std::string to_string(const RecomputePolicy& policy);  // none, every:N, full, selective
// The reverse; a usage error that lists them otherwise.
RecomputePolicy parse_recompute(const std::string& text);

// What one unit's calls follow (UnitHooks::recompute).
struct UnitRecompute {
  RecomputeKind kind = RecomputeKind::none;
  int region = 0;  // every: blocks of one number that follow each other are one region
  std::shared_ptr<HostActivations> store = {};  // where regions keep their inputs; null: in place
};

// Usage errors: no unit is a block (Unit::block), unless the policy is none; activations kept on
// the host by a policy without regions.
void check_recompute(std::span<const Unit> units, const RecomputePolicy& policy, bool on_host);
// Tells the blocks among the units, which were checked.
void set_recompute(std::span<const Unit> units,
                   const RecomputePolicy& policy,
                   const std::shared_ptr<HostActivations>& store = {});

}  // namespace sg

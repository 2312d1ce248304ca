#include "dist/options.h"

#include <span>

#include "core/error.h"

namespace sg::dist {
namespace {

constexpr const char* engines[] = {"none", "dp", "ddp", "zero1", "zero2", "zero3", "auto"};
constexpr const char* orders[] = {"auto", "local_first", "ranks_first"};
constexpr const char* partitions[] = {"bucket", "contiguous"};
constexpr const char* nonfinite[] = {"stop", "skip"};

template <class Enum>
Enum parse(const char* option, std::span<const char* const> names, const std::string& text) {
  std::string known;
  for (size_t i = 0; i < names.size(); ++i) {
    if (text == names[i]) return static_cast<Enum>(i);
    known += (i ? ", " : "") + std::string(names[i]);
  }
  fail(ErrorKind::usage, "{}: \"{}\" is none of {}", option, text, known);
}

}  // namespace

const char* name_of(EngineKind kind) { return engines[static_cast<int>(kind)]; }
const char* name_of(Accumulation order) { return orders[static_cast<int>(order)]; }
const char* name_of(PartitionKind kind) { return partitions[static_cast<int>(kind)]; }
const char* name_of(OnNonFinite what) { return nonfinite[static_cast<int>(what)]; }
EngineKind parse_engine(const std::string& text) { return parse<EngineKind>("engine", engines, text); }
Accumulation parse_accumulation(const std::string& text) { return parse<Accumulation>("accumulation", orders, text); }
PartitionKind parse_partition(const std::string& text) { return parse<PartitionKind>("partition", partitions, text); }
OnNonFinite parse_on_nonfinite(const std::string& text) { return parse<OnNonFinite>("on-nonfinite", nonfinite, text); }

Accumulation default_order(EngineKind kind) {
  const bool whole =
      kind == EngineKind::none || kind == EngineKind::dp || kind == EngineKind::ddp || kind == EngineKind::zero1;
  return whole ? Accumulation::local_first : Accumulation::ranks_first;
}

}  // namespace sg::dist

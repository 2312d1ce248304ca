#include "dist/options.h"

#include "core/copies.h"
#include "core/error.h"

namespace sg::dist {

std::vector<EngineKind> engines_tried(EngineKind kind) {
  if (kind != EngineKind::automatic)
    return {kind};
  return {EngineKind::ddp, EngineKind::zero1, EngineKind::zero2, EngineKind::zero3};
}

bool has_any(EngineSet set, EngineKind kind) {
  for (const EngineKind one : engines_tried(kind)) {
    if (set & engines({one}))
      return true;
  }
  return false;
}

std::string names_of(EngineSet set) {
  std::string names;
  for (int i = 0; i < static_cast<int>(EngineKind::automatic); ++i) {
    const auto kind = static_cast<EngineKind>(i);
    if (has_any(set, kind))
      names += (names.empty() ? "" : ", ") + std::string(name_of(kind));
  }
  return names;
}

const char* precision_name(DType precision) {
  return precision == DType::f16 ? "fp16" : name_of(precision);
}

DType Word<DType>::parse(const std::string& text) {
  for (const DType precision : {DType::f32, DType::bf16, DType::f16}) {
    if (text == precision_name(precision))
      return precision;
  }
  fail(ErrorKind::usage, "precision: \"{}\" is none of f32, bf16, fp16", text);
}

Device state_device(const Options& options, Device device) {
  return options.offload_optimizer == OffloadDevice::cpu ? host_of(device) : device;
}

}  // namespace sg::dist
